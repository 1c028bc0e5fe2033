package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// runKubectl is cmd/kubectl of Kubernetes without the cloud providers' ways to
// log in, of which tests use none. kubectl reads its arguments from os.Args.
func runKubectl([]string) int {
	logs.GlogSetter(cmd.GetLogVerbosity(os.Args)) //nolint:errcheck
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		// Prints the error as kubectl does, and ends with its exit code.
		util.CheckErr(err)
	}
	return 0
}
