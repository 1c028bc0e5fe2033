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

// An operation of so long; "never" ends only when it is told to.
func start(item, value string) string {
	took, err := time.ParseDuration(value)
	if err != nil {
		took = 1000 * time.Hour
	}
	return fmt.Sprintf("%s|%d|%d", item, time.Now().UnixMilli(), took.Milliseconds())
}

func (a *operateAction) Progress(id string, _ *v1.Backup) (velero.OperationProgress, error) {
	parts := strings.Split(id, "|")
	if len(parts) != 3 {
		return velero.OperationProgress{}, biav2.InvalidOperationIDError(id)
	}
	note("progress", parts[0])
	began, _ := strconv.ParseInt(parts[1], 10, 64)
	takes, _ := strconv.ParseInt(parts[2], 10, 64)
	done := min(time.Now().UnixMilli()-began, takes)
	progress := velero.OperationProgress{
		NCompleted: done, NTotal: takes, OperationUnits: "ms", Description: "passing the time",
		Started: time.UnixMilli(began), Completed: done == takes,
	}
	if exists("cancelled-" + parts[0]) {
		progress.Completed, progress.Err = true, "told to stop"
	}
	return progress, nil
}

func (a *operateAction) Cancel(id string, _ *v1.Backup) error {
	item, _, _ := strings.Cut(id, "|")
	note("cancel", item)
	return os.WriteFile(stateFile("cancelled-"+item), nil, 0o644)
}
