package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Misbehaves before there is anything to talk to, as the name of the file says.
func atStart() {
	switch name := filepath.Base(os.Args[0]); {
	case strings.HasPrefix(name, "exits-at-start"):
		fmt.Fprintln(os.Stderr, "no luck today")
		os.Exit(3)
	case strings.HasPrefix(name, "hangs-at-start"):
		time.Sleep(time.Hour)
	case strings.HasPrefix(name, "says-nonsense"):
		fmt.Println("hello, I am no plugin")
		time.Sleep(time.Hour)
	}
}
