//! Expressions in CEL about the objects that a drill has restored. Pure.
//!
//! The evaluation itself has no time limit: the caller sets one. Errors quote no values of objects.

use std::collections::HashMap;

use cel::{
    Context, ExecutionError, Program, Value as CelValue,
    common::ast::{ComprehensionExpr, EntryExpr, Expr, IdedExpr},
};
use serde_json::Value;

/// The variable that holds the objects.
const OBJECTS: &str = "objects";
/// Maximum length of an expression (bytes).
const MAX_EXPRESSION_BYTES: usize = 1000;
/// Maximum number of macros inside one another, such as `all` in `all`.
const MAX_NESTED_MACROS: usize = 2;
/// Names of types, for comparisons with `type(x)`.
const TYPE_NAMES: [&str; 10] = [
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "type",
    "uint",
];

/// An expression over the list `objects`.
#[derive(Debug)]
pub struct Expression(Program);

impl Expression {
    /// The error is a clause that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("is empty".to_owned());
        }
        if text.len() > MAX_EXPRESSION_BYTES {
            return Err(format!(
                "is longer than {MAX_EXPRESSION_BYTES} bytes; divide it into several checks"
            ));
        }
        let program = Program::compile(text).map_err(|errors| {
            let first = errors.errors.first();
            let first = first.map_or("", |error| error.msg.as_str());
            format!("is no CEL expression: {first}")
        })?;
        check(&program.expression().expr, &mut vec![OBJECTS], 0)?;
        Ok(Self(program))
    }

    /// Whether it is true of these objects. The error is a clause that says why that is not known.
    pub fn holds(&self, objects: &[Value]) -> Result<bool, String> {
        let mut context = Context::default();
        let objects: Vec<CelValue> = objects.iter().map(value).collect();
        context.add_variable_from_value(OBJECTS, objects);
        match self.0.execute(&context) {
            Ok(CelValue::Bool(holds)) => Ok(holds),
            Ok(_) => Err("its value is neither true nor false".to_owned()),
            Err(error) => Err(reason(&error)),
        }
    }
}

/// Finds a variable that does not exist, and macros that are nested too deep. `known` are the
/// variables here, and `depth` is the number of macros around.
fn check<'a>(expression: &'a Expr, known: &mut Vec<&'a str>, depth: usize) -> Result<(), String> {
    match expression {
        Expr::Unspecified => Err("has an empty part".to_owned()),
        Expr::Literal(_) => Ok(()),
        Expr::Ident(name) => {
            let name = name.as_str();
            if known.contains(&name) || TYPE_NAMES.contains(&name) {
                return Ok(());
            }
            Err(format!(
                "names {name:?}, which does not exist; the variable is {OBJECTS}, the list of restored objects"
            ))
        }
        Expr::Select(select) => check(&select.operand.expr, known, depth),
        Expr::Call(call) => {
            let target = call.target.as_deref().into_iter();
            check_all(target.chain(&call.args), known, depth)
        }
        Expr::List(list) => check_all(&list.elements, known, depth),
        Expr::Map(map) => {
            let parts = map.entries.iter().flat_map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
                EntryExpr::StructField(field) => vec![&field.value],
            });
            check_all(parts, known, depth)
        }
        Expr::Struct(of_type) => Err(format!(
            "makes an object of type {:?}, which does not exist",
            of_type.type_name
        )),
        Expr::Comprehension(comprehension) => check_macro(comprehension, known, depth),
    }
}

fn check_all<'a>(
    expressions: impl IntoIterator<Item = &'a IdedExpr>,
    known: &mut Vec<&'a str>,
    depth: usize,
) -> Result<(), String> {
    for one in expressions {
        check(&one.expr, known, depth)?;
    }
    Ok(())
}

/// Each macro is a comprehension: a loop over a list, with variables of its own.
fn check_macro<'a>(
    comprehension: &'a ComprehensionExpr,
    known: &mut Vec<&'a str>,
    depth: usize,
) -> Result<(), String> {
    let ComprehensionExpr {
        iter_range,
        iter_var,
        iter_var2,
        accu_var,
        accu_init,
        loop_cond,
        loop_step,
        result,
    } = comprehension;
    check_all([iter_range, accu_init], known, depth)?;
    if depth == MAX_NESTED_MACROS {
        return Err(format!(
            "has more than {MAX_NESTED_MACROS} macros (all, exists, map, filter) inside one another"
        ));
    }
    let outside = known.len();
    known.extend([iter_var.as_str(), accu_var.as_str()]);
    known.extend(iter_var2.as_deref());
    check_all([loop_cond, loop_step, result], known, depth + 1)?;
    known.truncate(outside);
    Ok(())
}

/// JSON as CEL knows it from Kubernetes: whole numbers are `int`.
fn value(json: &Value) -> CelValue {
    match json {
        Value::Null => CelValue::Null,
        Value::Bool(value) => CelValue::Bool(*value),
        Value::Number(number) => {
            let fraction = || CelValue::Float(number.as_f64().unwrap_or(f64::NAN));
            number.as_i64().map_or_else(fraction, CelValue::Int)
        }
        Value::String(text) => CelValue::from(text.as_str()),
        Value::Array(items) => CelValue::from(items.iter().map(value).collect::<Vec<_>>()),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, field)| (name.clone(), value(field)));
            CelValue::from(fields.collect::<HashMap<_, _>>())
        }
    }
}

fn reason(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => {
            format!("an object has no field {key:?}; has() tells whether there is one")
        }
        ExecutionError::UndeclaredReference(name) => format!("there is no function {name:?}"),
        ExecutionError::NoSuchOverload(error) => error.to_string(),
        ExecutionError::IndexOutOfBounds(_) => "a list has fewer items".to_owned(),
        _ => "it has no value for these objects".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn objects() -> Vec<Value> {
        let deployment = |name: &str, ready: i64| {
            json!({ "metadata": { "name": name, "labels": { "app": name } },
                "spec": { "template": { "spec": { "containers": [{ "image": "shop/web:1" }] } } },
                "status": { "readyReplicas": ready, "ratio": 0.5 } })
        };
        vec![deployment("web", 2), deployment("worker", 0)]
    }

    #[rstest]
    #[case::number("objects.size() == 2", Ok(true))]
    #[case::all("objects.all(o, o.status.readyReplicas > 0)", Ok(false))]
    #[case::exists(
        "objects.exists(o, o.metadata.name == 'web' && o.status.readyReplicas + 1 == 3)",
        Ok(true)
    )]
    #[case::filtered(
        "objects.filter(o, o.metadata.labels['app'].startsWith('w')).size() == 2",
        Ok(true)
    )]
    #[case::nested(
        "objects.all(o, o.spec.template.spec.containers.all(c, c.image.matches('^shop/')))",
        Ok(true)
    )]
    #[case::fraction("objects[0].status.ratio < 0.6", Ok(true))]
    #[case::type_of("type(objects) == list", Ok(true))]
    #[case::missing("objects.all(o, has(o.status.updatedReplicas))", Ok(false))]
    #[case::no_field(
        "objects.all(o, o.status.updatedReplicas > 0)",
        Err("an object has no field \"updatedReplicas\"; has() tells whether there is one")
    )]
    #[case::no_function(
        "objects.all(o, o.metadata.name.shout() == 'X')",
        Err("there is no function \"shout\"")
    )]
    #[case::no_truth("objects.size()", Err("its value is neither true nor false"))]
    #[case::no_item("objects[7].kind == 'X'", Err("a list has fewer items"))]
    fn an_expression_is_true_or_false_or_says_why_not(
        #[case] text: &str,
        #[case] expected: Result<bool, &str>,
    ) {
        let found = Expression::parse(text).unwrap().holds(&objects());
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[rstest]
    #[case::empty(" ", "is empty")]
    #[case::no_cel("objects.size( ==", "is no CEL expression: ")]
    #[case::unknown("object.kind == 'X'", "names \"object\", which does not exist")]
    #[case::outside(
        "objects.all(o, true) && o.kind == 'X'",
        "names \"o\", which does not exist"
    )]
    #[case::in_a_map("{'a': b}.size() == 1", "names \"b\", which does not exist")]
    #[case::a_type("Pod{} == objects[0]", "makes an object of type \"Pod\"")]
    #[case::nested(
        "objects.all(a, objects.all(b, objects.all(c, true)))",
        "more than 2 macros"
    )]
    fn what_is_no_expression_about_objects_is_said(#[case] text: &str, #[case] expected: &str) {
        let error = Expression::parse(text).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn an_expression_has_a_maximum_length() {
        let text = |length: usize| format!("{:length$}", "objects.size() == 2");
        assert!(Expression::parse(&text(MAX_EXPRESSION_BYTES)).is_ok());
        let error = Expression::parse(&text(MAX_EXPRESSION_BYTES + 1)).unwrap_err();
        assert!(error.contains("longer than 1000 bytes"), "{error}");
    }

    #[test]
    fn an_error_quotes_no_value() {
        let objects = [json!({ "data": { "password": "hunter2" } })];
        for text in [
            "objects[0].data.password > 1",
            "objects[0].data.password + 1 == 2",
            "objects[0].data.password",
            "objects[0].data.password.all(c, true)",
        ] {
            let error = Expression::parse(text).unwrap().holds(&objects);
            let error = error.unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
