package main

import (
	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
)

// Says which items belong together: what a ConfigMap would bring along.
type togetherAction struct {
	log logrus.FieldLogger
}

func (a *togetherAction) Name() string { return "example.io/together" }

func (a *togetherAction) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{"cm"}, LabelSelector: "example.io/plugin=together"}, nil
}

func (a *togetherAction) GetRelatedItems(item runtime.Unstructured, _ *v1.Backup) ([]velero.ResourceIdentifier, error) {
	done, err := run(a.log, "together", item)
	return done.additional, err
}
