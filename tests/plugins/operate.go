package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	biav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/backupitemaction/v2"
)

// The newer kind: it starts operations. All that is known of one is in its id, so any process can say how far it is.
type operateAction struct {
	log logrus.FieldLogger
}

func (a *operateAction) Name() string { return "example.io/operate" }

func (a *operateAction) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{"cm"}, LabelSelector: "example.io/plugin=operate"}, nil
}

func (a *operateAction) Execute(item runtime.Unstructured, _ *v1.Backup) (
	runtime.Unstructured, []velero.ResourceIdentifier, string, []velero.ResourceIdentifier, error,
) {
	done, err := run(a.log, "operate", item)
	return done.item, done.additional, done.operation, done.after, err
}

// An operation of so long; "never" ends only when it is told to, "released" when there is a file of that name. After a
// slash: how long it takes to say how far it is. After a colon: what it fails with in the end.
func start(item, value string) string {
	value, failure, _ := strings.Cut(value, ":")
	value, answer, _ := strings.Cut(value, "/")
	took, err := time.ParseDuration(value)
	if err != nil {
		took = 1000 * time.Hour
	}
	if value == "released" {
		took = 0
	}
	wait, _ := time.ParseDuration(answer)
	return fmt.Sprintf("%s|%d|%d|%d|%s", item, time.Now().UnixMilli(), took.Milliseconds(), wait.Milliseconds(), failure)
}

func (a *operateAction) Progress(id string, _ *v1.Backup) (velero.OperationProgress, error) {
	return progress(id, biav2.InvalidOperationIDError(id))
}

func progress(id string, invalid error) (velero.OperationProgress, error) {
	parts := strings.Split(id, "|")
	if len(parts) != 5 {
		return velero.OperationProgress{}, invalid
	}
	note("progress", parts[0])
	began, _ := strconv.ParseInt(parts[1], 10, 64)
	takes, _ := strconv.ParseInt(parts[2], 10, 64)
	answer, _ := strconv.ParseInt(parts[3], 10, 64)
	time.Sleep(time.Duration(answer) * time.Millisecond)
	done := min(time.Now().UnixMilli()-began, takes)
	progress := velero.OperationProgress{
		NCompleted: done, NTotal: takes, OperationUnits: "ms", Description: "passing the time",
		Started: time.UnixMilli(began), Completed: done == takes && (takes > 0 || exists("released")),
	}
	if progress.Completed {
		progress.Err = parts[4]
	}
	if exists("cancelled-" + parts[0]) {
		progress.Completed, progress.Err = true, "told to stop"
	}
	return progress, nil
}

func (a *operateAction) Cancel(id string, _ *v1.Backup) error { return cancel(id) }

func cancel(id string) error {
	item, _, _ := strings.Cut(id, "|")
	note("cancel", item)
	return os.WriteFile(stateFile("cancelled-"+item), nil, 0o644)
}
