// Plugins for the tests, built on Velero's own framework. What each does with an item is written on the item: README.md.
package main

import (
	"os"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
)

func main() {
	go endWithParent(os.Getppid())
	atStart()
	framework.NewServer().
		BindFlags(pflag.CommandLine).
		RegisterBackupItemAction("example.io/mark", func(log logrus.FieldLogger) (any, error) {
			return &markAction{log: log}, nil
		}).
		RegisterBackupItemActionV2("example.io/operate", func(log logrus.FieldLogger) (any, error) {
			return &operateAction{log: log}, nil
		}).
		RegisterBackupItemActionV2("example.io/service-account", func(log logrus.FieldLogger) (any, error) {
			return &serviceAccountAction{}, nil
		}).
		RegisterRestoreItemAction("example.io/alter", func(log logrus.FieldLogger) (any, error) {
			return &alterAction{log: log}, nil
		}).
		RegisterRestoreItemActionV2("example.io/move", func(log logrus.FieldLogger) (any, error) {
			return &moveAction{log: log}, nil
		}).
		RegisterDeleteItemAction("example.io/forget", func(log logrus.FieldLogger) (any, error) {
			return &forgetAction{log: log}, nil
		}).
		RegisterItemBlockAction("example.io/together", func(log logrus.FieldLogger) (any, error) {
			return &togetherAction{log: log}, nil
		}).
		RegisterVolumeSnapshotter("example.io/disks", func(log logrus.FieldLogger) (any, error) {
			return &disks{log: log}, nil
		}).
		RegisterObjectStore("example.io/folder", func(log logrus.FieldLogger) (any, error) {
			return &folderStore{log: log}, nil
		}).
		Serve()
}

// A plugin does not hear of the end of whoever started it. In a container both end with it; on a test machine nobody else
// would end this one.
func endWithParent(parent int) {
	for os.Getppid() == parent {
		time.Sleep(200 * time.Millisecond)
	}
	os.Exit(1)
}
