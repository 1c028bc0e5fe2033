//! The parts of a declaration: series by label, and the macro that turns lines into a struct and
//! its reference.

use prometheus_client::{
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::Histogram,
    },
    registry::Registry,
};

/// The content type of served metrics (`https://prometheus.io/docs/specs/om/open_metrics_spec`).
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Values of labels, in the declared order of the labels.
pub type LabelValues<'a, const N: usize> = [&'a str; N];

/// A metric as served, for the reference page and for tests of queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Name with its prefix, and for counters with the served suffix.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    pub labels: Vec<&'static str>,
    pub help: &'static str,
}

/// A metric with labels: one series for each combination of their values.
#[derive(Debug)]
pub struct Series<M, const N: usize> {
    labels: [&'static str; N],
    family: Family<[(&'static str, String); N], M, Bounds>,
}

impl<M: Clone, const N: usize> Series<M, N>
where
    Bounds: MetricConstructor<M>,
{
    /// The series with these values; it is served from now on.
    pub fn of(&self, values: LabelValues<'_, N>) -> M {
        self.family.get_or_create_owned(&self.labelled(values))
    }

    /// Stops serving this series.
    pub fn remove(&self, values: LabelValues<'_, N>) {
        self.family.remove(&self.labelled(values));
    }

    fn labelled(&self, values: LabelValues<'_, N>) -> [(&'static str, String); N] {
        std::array::from_fn(|at| (self.labels[at], values[at].to_owned()))
    }
}

impl<const N: usize> Series<Gauge, N> {
    /// Sets the series with these values, or stops serving it.
    pub fn set(&self, values: LabelValues<'_, N>, value: Option<i64>) {
        match value {
            Some(value) => {
                self.of(values).set(value);
            }
            None => self.remove(values),
        }
    }
}

/// The upper bounds of a histogram's buckets; empty for other metrics.
#[derive(Clone, Copy, Debug)]
pub struct Bounds(&'static [f64]);

impl MetricConstructor<Counter> for Bounds {
    fn new_metric(&self) -> Counter {
        Counter::default()
    }
}

impl MetricConstructor<Gauge> for Bounds {
    fn new_metric(&self) -> Gauge {
        Gauge::default()
    }
}

impl MetricConstructor<Histogram> for Bounds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// The possible types of a field of a program's metrics.
pub(crate) trait Typed {
    const TYPE: &'static str;
}

impl Typed for Counter {
    const TYPE: &'static str = "counter";
}

impl Typed for Gauge {
    const TYPE: &'static str = "gauge";
}

impl Typed for Histogram {
    const TYPE: &'static str = "histogram";
}

impl<M: Typed, const N: usize> Typed for Series<M, N> {
    const TYPE: &'static str = M::TYPE;
}

/// A declaration, to be registered as a metric with `N` labels.
pub(crate) struct Declaration<const N: usize> {
    /// Name with its prefix, without the suffix of counters.
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) labels: [&'static str; N],
    pub(crate) bounds: &'static [f64],
}

/// A metric that is created and registered by its declaration.
pub(crate) trait Declared<const N: usize> {
    fn declared(registry: &mut Registry, declaration: Declaration<N>) -> Self;
}

impl Declared<0> for Counter {
    fn declared(registry: &mut Registry, declaration: Declaration<0>) -> Self {
        let metric = Self::default();
        registry.register(declaration.name, declaration.help, metric.clone());
        metric
    }
}

impl Declared<0> for Gauge {
    fn declared(registry: &mut Registry, declaration: Declaration<0>) -> Self {
        let metric = Self::default();
        registry.register(declaration.name, declaration.help, metric.clone());
        metric
    }
}

impl<M, const N: usize> Declared<N> for Series<M, N>
where
    Bounds: MetricConstructor<M>,
    Family<[(&'static str, String); N], M, Bounds>: prometheus_client::registry::Metric,
{
    fn declared(registry: &mut Registry, declaration: Declaration<N>) -> Self {
        let Declaration {
            name,
            help,
            labels,
            bounds,
        } = declaration;
        let family = Family::new_with_constructor(Bounds(bounds));
        registry.register(name, help, family.clone());
        Self { labels, family }
    }
}

/// Defines a struct from lines `name: Type [labels], "meaning";`. Each is a field, and is
/// registered under its name with the prefix. Counters get the suffix `_total` when served; a
/// histogram names its bounds: `name: Type [labels] in BOUNDS, …`. A metric that has another name
/// is declared with all of it: `name: Type [labels] as "full_name", …`.
macro_rules! metrics {
    (
        $(#[$doc:meta])*
        $metrics:ident, $prefix:literal;
        $(
            $name:ident: $type:ty [$($label:ident),*] $(in $bounds:ident)? $(as $full:literal)?,
            $help:literal;
        )*
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $metrics {
            registry: prometheus_client::registry::Registry,
            $(#[doc = $help] pub $name: $type,)*
        }

        impl Default for $metrics {
            fn default() -> Self {
                let mut registry = prometheus_client::registry::Registry::default();
                $(let $name = $crate::declare::Declared::declared(
                    &mut registry,
                    $crate::declare::Declaration {
                        name: metrics!(@name $prefix, $name $(, $full)?),
                        help: $help,
                        labels: [$(stringify!($label)),*],
                        bounds: metrics!(@bounds $($bounds)?),
                    },
                );)*
                Self { registry, $($name,)* }
            }
        }

        impl $metrics {
            /// The current values, in the format of [`CONTENT_TYPE`](crate::CONTENT_TYPE).
            pub fn encode(&self) -> String {
                let mut text = String::new();
                // Writing into a string cannot fail.
                let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
                text
            }

            /// All declared metrics, in the declared order.
            pub fn reference() -> Vec<$crate::Description> {
                vec![$({
                    let kind = <$type as $crate::declare::Typed>::TYPE;
                    let suffix = if kind == "counter" { "_total" } else { "" };
                    $crate::Description {
                        name: format!("{}{suffix}", metrics!(@name $prefix, $name $(, $full)?)),
                        kind,
                        labels: vec![$(stringify!($label)),*],
                        help: $help,
                    }
                },)*]
            }
        }
    };
    (@name $prefix:literal, $name:ident, $full:literal) => { $full };
    (@name $prefix:literal, $name:ident) => { concat!($prefix, "_", stringify!($name)) };
    (@bounds $bounds:ident) => { &$bounds };
    (@bounds) => { &[] };
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: [f64; 2] = [0.5, 1.0];

    metrics! {
        /// Of a test.
        Metrics, "test";
        plain: Gauge [], "A number";
        events: Series<Counter, 2> [kind, reason], "Things that happen";
        level: Series<Gauge, 1> [kind], "How high it stands";
        seconds: Series<Histogram, 1> [kind] in BOUNDS, "How long it takes";
        named: Series<Counter, 1> [kind] as "other_name", "Things under another name";
    }

    #[test]
    fn what_is_declared_is_served_and_described() {
        let metrics = Metrics::default();
        metrics.plain.set(7);
        metrics.events.of(["a", "b"]).inc();
        metrics.level.set(["a"], Some(3));
        metrics.seconds.of(["a"]).observe(0.7);
        metrics.named.of(["a"]).inc();
        let text = metrics.encode();
        for line in [
            "# HELP test_plain A number.",
            "test_plain 7",
            "test_events_total{kind=\"a\",reason=\"b\"} 1",
            "test_level{kind=\"a\"} 3",
            "test_seconds_bucket{le=\"0.5\",kind=\"a\"} 0",
            "test_seconds_bucket{le=\"1.0\",kind=\"a\"} 1",
            "other_name_total{kind=\"a\"} 1",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} not in\n{text}"
            );
        }
        let described: Vec<_> = Metrics::reference()
            .into_iter()
            .map(|one| (one.name, one.kind, one.labels))
            .collect();
        let described: Vec<_> = described
            .iter()
            .map(|(name, kind, labels)| (name.as_str(), *kind, &labels[..]))
            .collect();
        let expected: [(&str, &str, &[&str]); 5] = [
            ("test_plain", "gauge", &[]),
            ("test_events_total", "counter", &["kind", "reason"]),
            ("test_level", "gauge", &["kind"]),
            ("test_seconds", "histogram", &["kind"]),
            ("other_name_total", "counter", &["kind"]),
        ];
        assert_eq!(described, expected);
    }

    #[test]
    fn a_series_that_is_removed_is_served_no_more() {
        let metrics = Metrics::default();
        for kind in ["a", "b"] {
            metrics.level.set([kind], Some(1));
            metrics.events.of([kind, ""]).inc();
        }
        metrics.level.set(["a"], None);
        metrics.events.remove(["a", ""]);
        let text = metrics.encode();
        assert!(
            !text.contains("\"a\"") && text.matches("kind=\"b\"").count() == 2,
            "{text}"
        );
    }
}
