//! Flags, labels, annotations and environment variables that only the operator may set.
//!
//! One table for each. Both the admission rules and the checks of the controllers use it, so they cannot disagree.

use kube::core::{Message, Rule};

/// Flags of etcd that decide identity, membership, addresses, certificates or durability, each with the reason or the spec
/// field to use instead.
pub const FLAGS: &[(&str, &str)] = &[
    ("name", "the operator names members after their pods"),
    ("data-dir", "the operator sets the data directory"),
    ("wal-dir", "the operator sets the data directory"),
    ("config-file", "the operator cannot check flags in a file"),
    ("listen-peer-urls", "the operator sets addresses"),
    ("listen-client-urls", "the operator sets addresses"),
    ("listen-client-http-urls", "the operator sets addresses"),
    ("listen-metrics-urls", "the operator sets addresses"),
    ("advertise-client-urls", "the operator sets addresses"),
    ("initial-advertise-peer-urls", "the operator sets addresses"),
    ("initial-cluster", "the operator manages the membership"),
    ("initial-cluster-state", "the operator manages the membership"),
    ("initial-cluster-token", "the operator manages the membership"),
    ("force-new-cluster", "it can lose acknowledged writes"),
    ("unsafe-no-fsync", "it can lose acknowledged writes"),
    ("strict-reconfig-check", "disabling it can lose the quorum"),
    ("discovery", "the operator manages the membership"),
    ("discovery-srv", "the operator manages the membership"),
    ("discovery-endpoints", "the operator manages the membership"),
    ("discovery-token", "the operator manages the membership"),
    ("cert-file", "use TLS"),
    ("key-file", "use TLS"),
    ("client-cert-auth", "use TLS"),
    ("trusted-ca-file", "use TLS"),
    ("auto-tls", "use TLS"),
    ("peer-cert-file", "use TLS"),
    ("peer-key-file", "use TLS"),
    ("peer-client-cert-auth", "use TLS"),
    ("peer-trusted-ca-file", "use TLS"),
    ("peer-auto-tls", "use TLS"),
    ("auth-token", "use auth"),
    ("quota-backend-bytes", "use etcd.quotaBackendBytes"),
    ("auto-compaction-mode", "use etcd.autoCompaction"),
    ("auto-compaction-retention", "use etcd.autoCompaction"),
    ("snapshot-count", "use etcd.snapshotCount"),
    ("heartbeat-interval", "use etcd.heartbeatMs"),
    ("election-timeout", "use etcd.electionMs"),
    ("max-request-bytes", "use etcd.maxRequestBytes"),
];

/// The reserved flag that an argument of `etcd.extraArgs` sets, with the reason; `None` if the argument is allowed.
pub fn flag(argument: &str) -> Option<(&'static str, &'static str)> {
    let name = argument
        .trim_start_matches('-')
        .split('=')
        .next()
        .unwrap_or_default();
    FLAGS.iter().find(|(reserved, _)| *reserved == name).copied()
}

/// Whether a pod label key is reserved for the operator.
pub fn label(key: &str) -> bool {
    key == "app" || key.starts_with("etcd_") || key.starts_with("etcd.database.coreos.com/")
}

/// Whether a pod annotation key is reserved for the operator. A start permit is such an annotation.
pub fn annotation(key: &str) -> bool {
    key == "etcd.version" || key.starts_with("etcd.database.coreos.com/")
}

/// The reserved flag that an environment variable of the etcd container sets, with the reason. etcd reads every flag from a
/// variable, too.
pub fn variable(name: &str) -> Option<(&'static str, &'static str)> {
    let flag_name = name.strip_prefix("ETCD_")?.to_ascii_lowercase().replace('_', "-");
    FLAGS.iter().find(|(reserved, _)| *reserved == flag_name).copied()
}

/// The admission rule for `etcd.extraArgs`.
pub fn flags_rule() -> Rule {
    let names: Vec<_> = FLAGS.iter().map(|(name, _)| *name).collect();
    let pattern = format!("^-*({})(=.*)?$", names.join("|"));
    Rule::new(format!("self.all(a, !a.matches('{pattern}'))")).message(Message::Message(format!(
        "etcd.extraArgs must not set what belongs to the operator: {}",
        names.join(", ")
    )))
}

/// The admission rule for `pod.etcdEnv`.
pub fn env_rule() -> Rule {
    let names: Vec<_> = FLAGS
        .iter()
        .map(|(name, _)| name.to_ascii_uppercase().replace('-', "_"))
        .collect();
    Rule::new(format!("self.all(v, !v.name.matches('^ETCD_({})$'))", names.join("|"))).message(
        "pod.etcdEnv must not set variables that belong to the operator, such as ETCD_NAME, ETCD_DATA_DIR or ETCD_INITIAL_CLUSTER: they are the flags that etcd.extraArgs refuses",
    )
}

/// The admission rule for `pod.labels`.
pub fn labels_rule() -> Rule {
    Rule::new(
        "self.all(k, k != 'app' && !k.startsWith('etcd_') && !k.startsWith('etcd.database.coreos.com/'))",
    )
    .message(
        "pod.labels must not use the keys app, etcd_* and etcd.database.coreos.com/*: they belong to the operator; for example: labels: {team: orders}",
    )
}

/// The admission rule for `pod.annotations`.
pub fn annotations_rule() -> Rule {
    Rule::new("self.all(k, k != 'etcd.version' && !k.startsWith('etcd.database.coreos.com/'))").message(
        "pod.annotations must not use the keys etcd.version and etcd.database.coreos.com/*: they belong to the operator; for example: annotations: {owner: orders}",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_flag_is_recognized_in_every_spelling() {
        for argument in [
            "--name=x",
            "-name=x",
            "--name",
            "--initial-cluster-state=new",
            "--unsafe-no-fsync",
        ] {
            assert!(flag(argument).is_some(), "{argument}");
        }
        for argument in [
            "--log-level=warn",
            "--names=x",
            "--experimental-initial-corrupt-check",
        ] {
            assert!(flag(argument).is_none(), "{argument}");
        }
    }

    #[test]
    fn a_variable_is_reserved_if_its_flag_is() {
        assert!(variable("ETCD_FORCE_NEW_CLUSTER").is_some());
        assert!(variable("ETCD_INITIAL_CLUSTER").is_some());
        assert!(variable("ETCD_LOG_LEVEL").is_none());
        assert!(variable("GOMAXPROCS").is_none());
    }
}
