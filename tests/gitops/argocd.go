package gitops

import (
	"context"
	"fmt"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// health is what a script returns.
type health struct{ status, message string }

// runLua runs a script as Argo CD does: with three libraries (its own of the time is not used here), the object as `obj`, and a
// second of time. Argo CD: util/lua/lua.go.
func runLua(script string, object map[string]any) (health, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
	} {
		call := lua.P{Fn: state.NewFunction(open), Protect: true}
		if err := state.CallByParam(call, lua.LString(name)); err != nil {
			return health{}, err
		}
	}
	deadline, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state.SetContext(deadline)
	state.SetGlobal("obj", luaValue(state, object))
	if err := state.DoString(script); err != nil {
		return health{}, err
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return health{}, fmt.Errorf("it returns a %s", state.Get(-1).Type())
	}
	status, message := table.RawGetString("status"), table.RawGetString("message")
	if message.Type() != lua.LTString {
		return health{}, fmt.Errorf("its message is a %s", message.Type())
	}
	switch status.String() {
	case "Healthy", "Progressing", "Degraded", "Suspended", "Missing", "Unknown":
		return health{status.String(), message.String()}, nil
	}
	return health{}, fmt.Errorf("it returns the status %s", status)
}

// luaValue is a value of an object as scripts see it.
func luaValue(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case bool:
		return lua.LBool(value)
	case float64:
		return lua.LNumber(value)
	case string:
		return lua.LString(value)
	case []any:
		list := state.NewTable()
		for _, item := range value {
			list.Append(luaValue(state, item))
		}
		return list
	case map[string]any:
		table := state.NewTable()
		for key, item := range value {
			table.RawSetString(key, luaValue(state, item))
		}
		return table
	}
	return lua.LNil
}
