//! Gauges per object, computed from the existing objects at every scrape, so that no value is outdated or outlives its
//! object.

use std::fmt;

use kube::ResourceExt;
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

impl Figure {
    /// A value about an object, with the labels `namespace` and `kind`, for example `cluster`, which holds its name.
    pub fn of(kind: &'static str, object: &impl ResourceExt, value: i64) -> Self {
        Self {
            labels: vec![
                ("namespace", object.namespace().unwrap_or_default()),
                (kind, object.name_any()),
            ],
            value,
        }
    }

    /// Adds a label.
    #[must_use]
    pub fn with(mut self, label: &'static str, value: impl Into<String>) -> Self {
        self.labels.push((label, value.into()));
        self
    }
}

/// A metric whose values `figures` computes.
pub(super) struct Computed<F> {
    pub(super) name: String,
    pub(super) help: &'static str,
    pub(super) figures: F,
}

impl<F> fmt::Debug for Computed<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Computed({})", self.name)
    }
}

impl<F: Fn() -> Vec<Figure> + Send + Sync + 'static> Collector for Computed<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let first = ConstGauge::new(0_i64);
        let mut family =
            encoder.encode_descriptor(&self.name, self.help, None, EncodeMetric::metric_type(&first))?;
        for Figure { labels, value } in (self.figures)() {
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
