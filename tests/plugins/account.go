package main

import (
	"context"

	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	v1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	biav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/backupitemaction/v2"
)

// What our controller does with service accounts in its own process: the bindings of their cluster roles come along.
type serviceAccountAction struct{}

const group = "rbac.authorization.k8s.io"

func (a *serviceAccountAction) Name() string { return "example.io/service-account" }

func (a *serviceAccountAction) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{"serviceaccounts"}}, nil
}

func (a *serviceAccountAction) Execute(item runtime.Unstructured, _ *v1.Backup) (
	runtime.Unstructured, []velero.ResourceIdentifier, string, []velero.ResourceIdentifier, error,
) {
	account := &unstructured.Unstructured{Object: item.UnstructuredContent()}
	bindings, err := bindings()
	if err != nil {
		return nil, nil, "", nil, err
	}
	var additional []velero.ResourceIdentifier
	add := func(resource, name string) {
		additional = append(additional, velero.ResourceIdentifier{
			GroupResource: schema.GroupResource{Group: group, Resource: resource}, Name: name,
		})
	}
	for _, binding := range bindings {
		for _, subject := range binding.Subjects {
			if subject.Kind != "ServiceAccount" || subject.Namespace != account.GetNamespace() || subject.Name != account.GetName() {
				continue
			}
			if binding.RoleRef.Kind == "ClusterRole" {
				add("clusterroles", binding.RoleRef.Name)
			}
			add("clusterrolebindings", binding.Name)
			break
		}
	}
	return item, additional, "", nil, nil
}

func bindings() ([]rbac.ClusterRoleBinding, error) {
	config, err := clientcmd.BuildConfigFromFlags("", stateFile("kubeconfig"))
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	resource := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "clusterrolebindings"}
	found, err := client.Resource(resource).List(context.Background(), meta.ListOptions{})
	if err != nil {
		return nil, err
	}
	var list rbac.ClusterRoleBindingList
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(found.UnstructuredContent(), &list)
	return list.Items, err
}

func (a *serviceAccountAction) Progress(id string, _ *v1.Backup) (velero.OperationProgress, error) {
	return velero.OperationProgress{}, biav2.InvalidOperationIDError(id)
}

func (a *serviceAccountAction) Cancel(string, *v1.Backup) error { return nil }
