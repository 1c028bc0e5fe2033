package gitops

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
)

// expressions are those of one kind in healthCheckExprs of a Flux Kustomization.
type expressions struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	InProgress string `json:"inProgress"`
	Failed     string `json:"failed"`
	Current    string `json:"current"`
}

// evaluate judges an object as Flux does: the first expression that is true counts, and without one it is in progress. An
// expression about a status that is not there is an error, with which Flux waits, too. Flux: runtime/cel in github.com/fluxcd/pkg.
func (e expressions) evaluate(object map[string]any) (string, error) {
	for _, step := range []struct{ expression, status string }{
		{e.InProgress, "InProgress"}, {e.Failed, "Failed"}, {e.Current, "Current"},
	} {
		if step.expression == "" {
			continue
		}
		is, err := isTrue(step.expression, object)
		if err != nil && object["status"] == nil && strings.Contains(err.Error(), "no such attribute") {
			return "InProgress", nil
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", step.expression, err)
		}
		if is {
			return step.status, nil
		}
	}
	return "InProgress", nil
}

func isTrue(expression string, object map[string]any) (bool, error) {
	env, err := cel.NewEnv(
		cel.HomogeneousAggregateLiterals(), cel.EagerlyValidateDeclarations(true), cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(), ext.Strings(), ext.Sets(), ext.Encoders())
	if err != nil {
		return false, err
	}
	parsed, issues := env.Parse(expression)
	if issues.Err() != nil {
		return false, issues.Err()
	}
	program, err := env.Program(parsed, cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return false, err
	}
	value, _, err := program.Eval(object)
	if err != nil {
		return false, err
	}
	is, ok := value.(types.Bool)
	if !ok {
		return false, fmt.Errorf("it is a %s", value.Type())
	}
	return bool(is), nil
}
