package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Where the test looks: a folder beside that of the binary, with "-state" behind its name.
var stateFolder = sync.OnceValue(func() string {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	folder := filepath.Dir(self) + "-state"
	_ = os.MkdirAll(folder, 0o755)
	return folder
})

func stateFile(name string) string {
	return filepath.Join(stateFolder(), strings.ReplaceAll(name, "/", "_"))
}

// Opened once: a benchmark is about calls, and not about files.
var calls = sync.OnceValue(func() *os.File {
	file, _ := os.OpenFile(stateFile("calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	return file
})

// Notes a call: what was called, on what, by which process.
func note(call, what string) {
	fmt.Fprintf(calls(), "%s %s %d\n", call, what, os.Getpid())
}

// Whether a file of this name is there; it is from now on.
func before(name string) bool {
	file, err := os.OpenFile(stateFile(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return true
	}
	file.Close()
	return false
}

// How often this was asked, with this time.
func counted(name string) int {
	for n := 1; ; n++ {
		if !before(fmt.Sprintf("%s-%d", name, n)) {
			return n
		}
	}
}

func exists(name string) bool {
	_, err := os.Stat(stateFile(name))
	return err == nil
}
