package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
)

// The annotation with what is to be done: words with blanks between them, some with a value (word=value).
const script = "example.io/do"

// What comes of a script.
type outcome struct {
	item       runtime.Unstructured
	additional []velero.ResourceIdentifier
	operation  string
	after      []velero.ResourceIdentifier
}

func nameOf(item *unstructured.Unstructured) string {
	return item.GetNamespace() + "/" + item.GetName()
}

// Does what is written on the item.
func run(log logrus.FieldLogger, action string, given runtime.Unstructured) (outcome, error) {
	item := &unstructured.Unstructured{Object: given.UnstructuredContent()}
	note(action, nameOf(item))
	var done outcome
	for _, step := range strings.Fields(item.GetAnnotations()[script]) {
		word, value, _ := strings.Cut(step, "=")
		switch word {
		case "mark":
			annotations := item.GetAnnotations()
			annotations["example.io/marked-by"] = action
			item.SetAnnotations(annotations)
			done.item = item
		case "bring":
			done.additional = append(done.additional, identifier(value))
		case "start":
			done.operation = start(nameOf(item), value)
		case "after":
			done.after = append(done.after, identifier(value))
		case "say":
			level, text, _ := strings.Cut(value, ":")
			say(log, level, text)
		case "print":
			fmt.Println(value)
			fmt.Fprintln(os.Stderr, value)
		case "fail":
			return done, errors.New(value)
		case "panic":
			panic(value)
		case "hang":
			time.Sleep(time.Hour)
		case "freeze":
			for { // Whoever lets all processes go on does not mean this one.
				_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			}
		case "slow":
			wait, _ := time.ParseDuration(value)
			time.Sleep(wait)
		case "exit":
			os.Exit(7)
		case "exit-once":
			if !before("exited-" + nameOf(item)) {
				os.Exit(7)
			}
		case "flood":
			flood()
		case "nonsense":
			done.item = &unstructured.Unstructured{Object: map[string]any{"this": "is no object"}}
		default:
			return done, fmt.Errorf("no such step: %s", step)
		}
	}
	return done, nil
}

func say(log logrus.FieldLogger, level, text string) {
	switch level {
	case "error":
		log.Error(text)
	case "warning":
		log.Warn(text)
	case "debug":
		log.Debug(text)
	default:
		log.Info(text)
	}
}

// Our standard error as it was: go-plugin puts another one in its place.
var stderr = os.Stderr

// Many lines, and one that is very long.
func flood() {
	for n := range 20_000 {
		fmt.Fprintf(stderr, "{\"@level\":\"info\",\"@message\":\"flood %d\"}\n", n)
	}
	long := strings.Repeat("x", 1<<20)
	for range 64 {
		fmt.Fprint(stderr, long)
	}
	fmt.Fprintln(stderr)
	for range 64 {
		fmt.Fprint(os.Stdout, long)
	}
}

// From resource.group/namespace/name, the namespace empty for what has none.
func identifier(text string) velero.ResourceIdentifier {
	parts := strings.SplitN(text, "/", 3)
	for len(parts) < 3 {
		parts = append(parts, "")
	}
	return velero.ResourceIdentifier{
		GroupResource: schema.ParseGroupResource(parts[0]), Namespace: parts[1], Name: parts[2],
	}
}
