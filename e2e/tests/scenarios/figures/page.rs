//! The manager's page of metrics as whoever scrapes it has it, and how it differs from what is so.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::command::printed;
use tokio::process::Command;

use crate::cluster::tenant::Tenant;

/// The beginning of every name.
const PREFIX: &str = "etcd_operator_";

/// Figures by family and labels, as they are written, without the namespace.
pub type Figures = BTreeMap<String, i64>;

/// What each may be. Nothing else may be told.
pub type Truth = BTreeMap<String, RangeInclusive<i64>>;

/// What the manager tells of objects in the namespace of a tenant.
pub async fn scrape(tenant: &Tenant) -> Result<Figures> {
    let addresses = tenant
        .kubectl_of_operator(&[
            "get",
            "pods",
            "--selector=app.kubernetes.io/name=etcd-operator",
            "--output=jsonpath={.items[*].status.podIP}",
        ])
        .await?;
    let addresses: Vec<_> = addresses.split_whitespace().collect();
    let [address] = addresses[..] else {
        anyhow::bail!("not one manager but {addresses:?}");
    };
    let node = &tenant.stage().cluster().nodes()[0];
    let mut curl: Command = node.entry().command("curl")?.into();
    curl.args(["--silent", "--show-error", "--fail", "--max-time", "5"])
        .arg(format!("http://{address}:8080/metrics"))
        .kill_on_drop(true);
    let page = printed(curl.output().await?, "curl /metrics")?;
    read(&page, tenant.stage().namespace())
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
