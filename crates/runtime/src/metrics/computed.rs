//! Gauges per object, computed from the existing objects at every scrape, so that no value is outdated or outlives its
//! object.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

/// A value with its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Labels and their values: namespace and name of the object first.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: i64,
}

/// A value about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerObject {
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// The value.
    pub value: i64,
}

impl PerObject {
    /// Adds a label, for a value about a part of the object.
    pub fn with(self, label: &'static str, value: impl Into<String>) -> Figure {
        let mut figure = Figure::from(self);
        figure.labels.push((label, value.into()));
        figure
    }
}

impl Figure {
    /// Adds a label.
    #[must_use]
    pub fn with(mut self, label: &'static str, value: impl Into<String>) -> Self {
        self.labels.push((label, value.into()));
        self
    }
}

impl From<PerObject> for Figure {
    fn from(figure: PerObject) -> Self {
        Self {
            labels: vec![("namespace", figure.namespace), ("name", figure.name)],
            value: figure.value,
        }
    }
}

/// A metric whose values `figures` computes.
pub(super) struct Computed<F> {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) figures: F,
}

impl<F> fmt::Debug for Computed<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Computed({})", self.name)
    }
}

impl<T: Into<Figure>, F: Fn() -> Vec<T> + Send + Sync + 'static> Collector for Computed<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let first = ConstGauge::new(0_i64);
        let mut family =
            encoder.encode_descriptor(self.name, self.help, None, EncodeMetric::metric_type(&first))?;
        for figure in (self.figures)() {
            let Figure { labels, value } = figure.into();
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
