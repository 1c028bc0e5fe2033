package main

import (
	"github.com/sirupsen/logrus"

	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
)

// Sees ConfigMaps of a backup that is deleted.
type forgetAction struct {
	log logrus.FieldLogger
}

func (a *forgetAction) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{"cm"}, LabelSelector: "example.io/plugin=forget"}, nil
}

func (a *forgetAction) Execute(input *velero.DeleteItemActionExecuteInput) error {
	_, err := run(a.log, "forget", input.Item)
	return err
}
