//! The manager's page of metrics as a Prometheus has it by the chart's PodMonitor, and how it differs from what is so.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use anyhow::{Context, Result, bail, ensure};
use etcd_operator_e2e::command::printed;
use etcd_operator_e2e::install::{Kubernetes, NAMESPACE};
use etcd_operator_e2e::scenario::Stage;
use serde_json::Value;
use tokio::process::Command;

use crate::cluster::tenant::Tenant;

/// The beginning of every name.
const PREFIX: &str = "etcd_operator_";

/// Figures by family and labels, as they are written, without the namespace.
pub type Figures = BTreeMap<String, i64>;

/// What each may be. Nothing else may be told.
pub type Truth = BTreeMap<String, RangeInclusive<i64>>;

/// Whom to scrape, and where.
pub struct Monitor {
    selector: String,
    /// The port's name.
    port: String,
    path: String,
}

impl Monitor {
    /// The one that the chart makes for the manager of a bed.
    pub async fn on(stage: &Stage) -> Result<Self> {
        let kubernetes = Kubernetes::at(stage.cluster().control_plane().kubeconfig()).await?;
        let monitor: Value = serde_saphyr::from_str(&kubernetes.pod_monitor().await?)?;
        // Without a list of namespaces it looks in its own.
        ensure!(monitor["metadata"]["namespace"] == NAMESPACE, "{monitor}");
        let labels = monitor["spec"]["selector"]["matchLabels"].as_object();
        let labels = labels.context("a monitor of everything")?.iter();
        let labels: Vec<String> = labels
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect();
        let endpoints = monitor["spec"]["podMetricsEndpoints"].as_array();
        let [endpoint] = endpoints.context("a monitor of nothing")?.as_slice() else {
            bail!("the manager has not one page: {monitor}");
        };
        let text = |key: &str| endpoint[key].as_str().map(str::to_owned);
        Ok(Self {
            selector: labels.join(","),
            port: text("port").context("a page without a port")?,
            path: text("path").context("a page without a path")?,
        })
    }

    /// What the manager tells of objects in the namespace of a tenant.
    pub async fn scrape(&self, tenant: &Tenant) -> Result<Figures> {
        let selector = format!("--selector={}", self.selector);
        let output = format!(
            "--output=jsonpath={{range .items[*]}}{{.status.podIP}}:\
             {{.spec.containers[*].ports[?(@.name==\"{}\")].containerPort}} {{end}}",
            self.port
        );
        let addresses = tenant
            .kubectl_of_operator(&["get", "pods", &selector, &output])
            .await?;
        let addresses: Vec<_> = addresses.split_whitespace().collect();
        let [address] = addresses[..] else {
            bail!("not one manager but {addresses:?}");
        };
        let node = &tenant.stage().cluster().nodes()[0];
        let mut curl: Command = node.entry().command("curl")?.into();
        curl.args(["--silent", "--show-error", "--fail", "--max-time", "5"])
            .arg(format!("http://{address}{}", self.path))
            .kill_on_drop(true);
        let page = printed(curl.output().await?, "curl of the metrics")?;
        read(&page, tenant.stage().namespace())
    }
}

fn read(page: &str, namespace: &str) -> Result<Figures> {
    let label = format!("namespace=\"{namespace}\"");
    let mut figures = Figures::new();
    for line in page.lines().filter(|line| line.contains(&label)) {
        let (series, value) = line.rsplit_once(' ').context("a series without a value")?;
        let series = series.strip_prefix(PREFIX).context("a series of somebody else")?;
        let series = series.replacen(&format!("{label},"), "", 1);
        ensure!(!series.contains(&label), "an object without a name: {line}");
        let value = value
            .parse()
            .with_context(|| format!("no whole number: {line}"))?;
        ensure!(figures.insert(series, value).is_none(), "told twice: {line}");
    }
    Ok(figures)
}

/// In words; nothing where they agree.
pub fn differences(told: &Figures, truth: &Truth) -> Vec<String> {
    let wrong = truth.iter().filter_map(|(series, range)| match told.get(series) {
        None => Some(format!("{series} is not told, and is {range:?}")),
        Some(value) if !range.contains(value) => {
            Some(format!("{series} is told as {value}, and is {range:?}"))
        }
        Some(_) => None,
    });
    let invented = told
        .iter()
        .filter(|(series, _)| !truth.contains_key(*series))
        .map(|(series, value)| format!("{series} is told as {value}, and there is nothing of the kind"));
    wrong.chain(invented).collect()
}
