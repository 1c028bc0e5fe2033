package main

import (
	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
)

// The older kind of action: ConfigMaps with a label.
type markAction struct {
	log logrus.FieldLogger
}

func (a *markAction) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{"configmaps"}, LabelSelector: "example.io/plugin=mark"}, nil
}

func (a *markAction) Execute(item runtime.Unstructured, _ *v1.Backup) (runtime.Unstructured, []velero.ResourceIdentifier, error) {
	done, err := run(a.log, "mark", item)
	return done.item, done.additional, err
}
