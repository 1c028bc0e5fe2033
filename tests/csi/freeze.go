package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// freezers is where the control groups of the freezer are (version 1).
	freezers = "/sys/fs/cgroup/freezer"
	// freezeTimeout is the time that a control group has to freeze.
	freezeTimeout = 5 * time.Second
)

// freeze stops the containers that have a folder mounted, so that a copy of it
// shows one moment, like a snapshot of a storage system. The folder is given by
// the end of its path. The containers continue with thaw.
func freeze(folder string) (thaw func() error, err error) {
	groups, err := groupsWith(folder)
	if err != nil {
		return nil, err
	}
	thaw = func() error {
		var all error
		for group := range groups {
			// The group of a container that has ended meanwhile is gone.
			if err := setState(group, "THAWED"); !errors.Is(err, os.ErrNotExist) {
				all = errors.Join(all, err)
			}
		}
		return all
	}
	for group := range groups {
		if err := freezeGroup(group); err != nil {
			return nil, errors.Join(err, thaw())
		}
	}
	return thaw, nil
}

// groupsWith returns the control groups whose processes have a folder mounted.
func groupsWith(folder string) (map[string]bool, error) {
	// Here, the mounts are those of kubelet, and no container uses the folder.
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return nil, err
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	groups := map[string]bool{}
	for _, process := range processes {
		namespace, err := os.Readlink(filepath.Join(process, "ns/mnt"))
		if err != nil || namespace == own || !isMounted(process, folder) {
			continue // most often another container, or it has ended
		}
		if group := freezerOf(process); group != "" && group != "/" {
			groups[filepath.Join(freezers, group)] = true
		}
	}
	return groups, nil
}

// isMounted says whether a process has a folder mounted.
func isMounted(process, folder string) bool {
	mounts, err := os.ReadFile(filepath.Join(process, "mountinfo"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(mounts)) {
		// The fourth field is the folder of the file system that is mounted.
		if fields := strings.Fields(line); len(fields) > 3 && strings.HasSuffix(fields[3], folder) {
			return true
		}
	}
	return false
}

// freezerOf returns the control group of a process.
func freezerOf(process string) string {
	groups, err := os.ReadFile(filepath.Join(process, "cgroup"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(groups)) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 && fields[1] == "freezer" {
			return fields[2]
		}
	}
	return ""
}

func setState(group, state string) error {
	return os.WriteFile(filepath.Join(group, "freezer.state"), []byte(state), 0)
}

// freezeGroup waits until nothing in a control group runs. Its state alone does
// not say so: it stays at FREEZING if a program waits in vfork.
func freezeGroup(group string) error {
	if err := setState(group, "FROZEN"); err != nil {
		return err
	}
	for end := time.Now().Add(freezeTimeout); ; time.Sleep(time.Millisecond) {
		threads, err := os.ReadFile(filepath.Join(group, "tasks"))
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(strings.Fields(string(threads)), isAwake) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the processes of %s do not freeze", group)
		}
	}
}

// isAwake says whether a thread runs, or sleeps and could be woken.
func isAwake(thread string) bool {
	text, err := os.ReadFile(filepath.Join("/proc", thread, "stat"))
	if err != nil {
		return false // it has ended
	}
	// "id (name) state": in the freezer (D), a zombie, or dead.
	_, state, _ := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " ")
	return !strings.ContainsAny(state[:min(1, len(state))], "DZX")
}
