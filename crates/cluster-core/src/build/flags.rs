//! How etcd is started, apart from what only its first start needs: that comes with the permit.

use std::time::Duration;

use etcd_operator_api::refusal::Refusal;
use etcd_operator_etcd_types::{
    flags::{self, ClientTls, Config, Figures, FlagError, PeerTls, Tuning},
    id::Revision,
    policy::Feature,
};

use super::{
    BuildInputs,
    address::Addresses,
    volumes::{DATA_DIR, PEER_TLS, SERVER_TLS},
};
use crate::desired::{Compaction, Desired, Options};

/// What the kubelet puts the pod's name for.
const POD_NAME: &str = "$(POD_NAME)";
/// Stands for the pod's name where an address is needed, which `$` cannot be part of.
const POD_PLACEHOLDER: &str = "pod";
/// The flags whose addresses carry the pod's name.
const ADDRESS_FLAGS: [&str; 2] = ["--initial-advertise-peer-urls=", "--advertise-client-urls="];

/// etcd compares the hashes that compactions leave behind this often; it costs next to nothing.
const COMPACTION_CHECK_PERIOD: Duration = Duration::from_mins(1);
/// etcd reads all data of all members to compare them; without compactions nothing else would find a difference.
const HASH_CHECK_PERIOD: Duration = Duration::from_hours(24);

/// etcd's arguments in the version of the pod template, without those of a first start. A refusal names the field whose
/// flag the version does not have, or the variable that sets a flag a second time.
pub(super) fn render_arguments(desired: &Desired, inputs: &BuildInputs) -> Result<Vec<String>, Vec<Refusal>> {
    let arguments = flags::render(&config(desired, inputs), &inputs.version)
        .map_err(|error| vec![Refusal::invalid(spec_field(&error), error.to_string())])?;
    let refused: Vec<_> = desired
        .pod
        .env
        .iter()
        .filter_map(|variable| why_variable_conflicts(&variable.name, &arguments))
        .map(|problem| Refusal::invalid("spec.pod.etcdEnv", problem))
        .collect();
    if !refused.is_empty() {
        return Err(refused);
    }
    Ok(arguments.into_iter().map(insert_pod_name).collect())
}

/// Why a variable of the environment is refused: etcd does not start when a flag and its variable are both set. `None`
/// if the flag is not set.
pub(super) fn why_variable_conflicts(variable: &str, arguments: &[String]) -> Option<String> {
    let flag = variable
        .strip_prefix("ETCD_")?
        .to_ascii_lowercase()
        .replace('_', "-");
    let is_set = arguments
        .iter()
        .filter_map(|argument| argument.strip_prefix("--"))
        .any(|argument| argument.split('=').next() == Some(flag.as_str()));
    is_set.then(|| {
        format!(
            "must not set {variable}, for etcd does not start when the flag is set too, as the operator or spec.etcd.extraArgs does: take it out here and write the flag in spec.etcd.extraArgs; for example: --{flag}=VALUE"
        )
    })
}

/// The field of the spec that an error about a flag comes from.
fn spec_field(error: &FlagError) -> &'static str {
    let flag = match error {
        FlagError::Unknown(_) => return "spec.version",
        FlagError::Absent { flag, .. } => flag.as_str(),
        FlagError::Value { flag, .. } => flag,
        FlagError::Reserved(_) | FlagError::Misspelled(_) | FlagError::Twice(_) => return EXTRA_ARGS_FIELD,
    };
    match flag {
        "auto-compaction-mode" => "spec.etcd.autoCompaction.mode",
        "auto-compaction-retention" => "spec.etcd.autoCompaction.retention",
        _ => EXTRA_ARGS_FIELD,
    }
}

const EXTRA_ARGS_FIELD: &str = "spec.etcd.extraArgs";

/// Puts the variable with the pod's name into the addresses of a member; the kubelet replaces it.
fn insert_pod_name(argument: String) -> String {
    match ADDRESS_FLAGS.iter().find(|flag| argument.starts_with(**flag)) {
        Some(_) => argument.replacen(&format!("://{POD_PLACEHOLDER}."), &format!("://{POD_NAME}."), 1),
        None => argument,
    }
}

/// The configuration of etcd, with a placeholder for the pod's name in its own addresses.
fn config(desired: &Desired, inputs: &BuildInputs) -> Config {
    let has = |feature: Feature| feature.is_in(&inputs.version);
    let addresses = Addresses::new(desired, &inputs.namespace);
    let any_address = "0.0.0.0";
    let own = addresses.pod_host(POD_PLACEHOLDER);
    Config {
        name: POD_NAME.to_owned(),
        data_dir: DATA_DIR.to_owned(),
        listen_peer: vec![addresses.peer_at(any_address)],
        listen_client: vec![addresses.client_at(any_address)],
        listen_metrics: has(Feature::MetricsAddress)
            .then(|| Addresses::metrics_at(any_address))
            .into_iter()
            .collect(),
        advertise_peer: vec![addresses.peer_at(&own)],
        advertise_client: vec![addresses.client_at(&own)],
        first: None,
        client_tls: desired.tls.client.as_ref().map(|_| ClientTls {
            certificate: format!("{SERVER_TLS}/server.crt"),
            key: format!("{SERVER_TLS}/server.key"),
            authority: Some(format!("{SERVER_TLS}/server-ca.crt")),
        }),
        peer_tls: desired.tls.peer.as_ref().map(|_| PeerTls {
            certificate: format!("{PEER_TLS}/peer.crt"),
            key: format!("{PEER_TLS}/peer.key"),
            authority: format!("{PEER_TLS}/peer-ca.crt"),
        }),
        tuning: tuning(&desired.options),
        figures: Figures::Basic,
        check_at_start: has(Feature::CorruptAlarm),
        // Before hashes of compactions were compared, the other comparison raised false alarms.
        check_every: has(Feature::CompactHashCheck).then_some(HASH_CHECK_PERIOD),
        check_compactions_every: has(Feature::CompactHashCheck).then_some(COMPACTION_CHECK_PERIOD),
        stop_serving_on_defrag: has(Feature::StopServingOnDefrag),
        max_learners: None,
        extra: desired.options.extra.clone(),
    }
}

fn tuning(options: &Options) -> Tuning {
    let Options {
        quota,
        compaction,
        snapshot_count,
        heartbeat_ms,
        election_ms,
        max_request_bytes,
        extra: _,
    } = options;
    let milliseconds = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    Tuning {
        quota: *quota,
        compaction: compaction.as_ref().map(|compaction| match compaction {
            Compaction::Periodic(age) => flags::Compaction::Periodic(*age),
            Compaction::Revisions(count) => {
                flags::Compaction::Revision(Revision(i64::try_from(*count).unwrap_or(i64::MAX)))
            }
        }),
        snapshot_count: *snapshot_count,
        heartbeat_ms: heartbeat_ms.map(milliseconds),
        election_ms: election_ms.map(milliseconds),
        max_request_bytes: *max_request_bytes,
    }
}
