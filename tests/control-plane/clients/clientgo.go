package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// created is what a program that uses client-go gets to see of one creation.
type created struct {
	Name           string               `json:"name"`
	UID            string               `json:"uid"`
	ElapsedSeconds float64              `json:"elapsedSeconds"`
	Attempts       int64                `json:"attempts"`
	Error          string               `json:"error"`
	Code           int32                `json:"code"`
	Reason         metav1.StatusReason  `json:"reason"`
	RetryAfter     int32                `json:"retryAfterSeconds"`
	Causes         []metav1.StatusCause `json:"causes"`
	Warnings       []string             `json:"warnings"`
}

// HandleWarningHeader keeps warnings, which client-go would print.
func (c *created) HandleWarningHeader(_ int, _ string, text string) {
	c.Warnings = append(c.Warnings, text)
}

type countAttempts struct {
	next  http.RoundTripper
	count *atomic.Int64
}

func (c countAttempts) RoundTrip(request *http.Request) (*http.Response, error) {
	c.count.Add(1)
	return c.next.RoundTrip(request)
}

// runClientGoCreate creates one object the way a plain client-go program does,
// with the retries that client-go has by itself, and prints what became of it
// as one line of JSON. The exit code is 0 when the object was created, 1 when
// it was not and 2 for a mistake in the call.
func runClientGoCreate(args []string) int {
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file")
	file := flags.String("file", "", "file with the object, YAML or JSON")
	resource := flags.String("resource", "", "plural name of its kind, such as backups")
	timeout := flags.Duration("timeout", 0, "time-out of the client, which is also sent to the server; 0 for none")
	dryRun := flags.Bool("dry-run", false, "only ask what would happen")
	if err := flags.Parse(args[1:]); err != nil {
		return 2
	}
	result := &created{Causes: []metav1.StatusCause{}, Warnings: []string{}}
	err := result.create(*kubeconfig, *file, *resource, *timeout, *dryRun)
	var status apierrors.APIStatus
	switch {
	case err == nil:
	case errors.As(err, &status):
		result.Error = err.Error()
		result.Code, result.Reason = status.Status().Code, status.Status().Reason
		if details := status.Status().Details; details != nil {
			result.RetryAfter = details.RetryAfterSeconds
			result.Causes = append(result.Causes, details.Causes...)
		}
	case result.Attempts > 0:
		result.Error = err.Error()
	default:
		fmt.Fprintln(os.Stderr, "client-go-create:", err)
		return 2
	}
	line, err2 := json.Marshal(result)
	if err2 != nil {
		fmt.Fprintln(os.Stderr, "client-go-create:", err2)
		return 2
	}
	fmt.Println(string(line))
	if err != nil {
		return 1
	}
	return 0
}

func (c *created) create(kubeconfig, file, resource string, timeout time.Duration, dryRun bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &object.Object); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	var attempts atomic.Int64
	config.Timeout = timeout
	config.WarningHandler = c
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return countAttempts{next, &attempts} })
	client, err := dynamic.NewForConfig(rest.AddUserAgent(config, "client-go-create"))
	if err != nil {
		return err
	}
	options := metav1.CreateOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	version := object.GroupVersionKind().GroupVersion()
	start := time.Now()
	stored, err := client.
		Resource(schema.GroupVersionResource{Group: version.Group, Version: version.Version, Resource: resource}).
		Namespace(object.GetNamespace()).
		Create(context.Background(), object, options)
	c.ElapsedSeconds, c.Attempts = time.Since(start).Seconds(), attempts.Load()
	if err != nil {
		return err
	}
	c.Name, c.UID = stored.GetName(), string(stored.GetUID())
	return nil
}
