package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	riav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/restoreitemaction/v2"
)

// Actions on items of a restore do what is written in this annotation, by the words of script.go and some of their own.
const restoreScript = "example.io/restore"

// The item, with the words that the common script knows: those of actions on items of a restore are taken out.
func restoreWords(item *unstructured.Unstructured) (own []string, common string) {
	var rest []string
	for _, step := range strings.Fields(item.GetAnnotations()[restoreScript]) {
		switch word, _, _ := strings.Cut(step, "="); word {
		case "skip", "wait", "ready", "kind", "rename":
			own = append(own, step)
		default:
			rest = append(rest, step)
		}
	}
	return own, strings.Join(rest, " ")
}

func runRestore(log logrus.FieldLogger, action string, input *velero.RestoreItemActionExecuteInput) (
	*velero.RestoreItemActionExecuteOutput, error,
) {
	item := &unstructured.Unstructured{Object: input.Item.UnstructuredContent()}
	pristine := &unstructured.Unstructured{Object: input.ItemFromBackup.UnstructuredContent()}
	if pristine.GetUID() == "" || item.GetUID() != "" || input.Restore.Name == "" {
		return nil, fmt.Errorf("the item from the backup is not as it was: %s %q", nameOf(pristine), pristine.GetUID())
	}
	own, words := restoreWords(item)
	// The common script works on the annotation that it knows.
	copied := item.DeepCopy()
	annotations := copied.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[script] = words
	copied.SetAnnotations(annotations)
	done, err := run(log, action, copied)
	if err != nil {
		return nil, err
	}
	output := &velero.RestoreItemActionExecuteOutput{
		UpdatedItem: done.item, AdditionalItems: done.additional, OperationID: done.operation,
	}
	for _, step := range own {
		word, value, _ := strings.Cut(step, "=")
		switch word {
		case "skip":
			output.SkipRestore = true
		case "wait":
			output.WaitForAdditionalItems = true
			output.AdditionalItemsReadyTimeout, _ = time.ParseDuration(value)
		case "rename", "kind":
			if output.UpdatedItem == nil {
				output.UpdatedItem = copied
			}
			changed := &unstructured.Unstructured{Object: output.UpdatedItem.UnstructuredContent()}
			if word == "rename" {
				changed.SetName(value)
			} else {
				changed.SetKind(value)
			}
		}
	}
	if output.UpdatedItem != nil {
		changed := &unstructured.Unstructured{Object: output.UpdatedItem.UnstructuredContent()}
		unstructured.RemoveNestedField(changed.Object, "metadata", "annotations", script)
	}
	return output, nil
}

// The older kind of action on items of a restore.
type alterAction struct {
	log logrus.FieldLogger
}

func (a *alterAction) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{"cm"}, LabelSelector: "example.io/restored-by=alter"}, nil
}

func (a *alterAction) Execute(input *velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error) {
	return runRestore(a.log, "alter", input)
}

// The newer kind: it starts operations, and has what it brings along waited for.
type moveAction struct {
	log logrus.FieldLogger
}

func (a *moveAction) Name() string { return "example.io/move" }

func (a *moveAction) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{"configmaps"}, LabelSelector: "example.io/restored-by=move"}, nil
}

func (a *moveAction) Execute(input *velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error) {
	return runRestore(a.log, "move", input)
}

// Ready after so many questions as the name of the first of them ends with.
func (a *moveAction) AreAdditionalItemsReady(items []velero.ResourceIdentifier, restore *v1.Restore) (bool, error) {
	if len(items) == 0 {
		note("ready", restore.Name)
		return true, nil
	}
	name := items[0].Namespace + "/" + items[0].Name
	note("ready", name)
	if strings.HasSuffix(name, "-fails") {
		return false, fmt.Errorf("it is broken")
	}
	var after int
	_, err := fmt.Sscanf(name[strings.LastIndex(name, "-")+1:], "%d", &after)
	return err == nil && counted("asked-"+name) >= after, nil
}

func (a *moveAction) Progress(id string, _ *v1.Restore) (velero.OperationProgress, error) {
	return progress(id, riav2.InvalidOperationIDError(id))
}

func (a *moveAction) Cancel(id string, _ *v1.Restore) error { return cancel(id) }
