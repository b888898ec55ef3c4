//! Commands, flags and environment. Whatever can be set is documented here and shown by `--help`.

use std::{collections::BTreeSet, net::SocketAddr};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use etcd_operator_api::scope::ScopeRule;
use etcd_operator_runtime::informer::Scope;

/// Runs etcd clusters on Kubernetes, backs them up and restores them.
#[derive(Debug, Parser)]
#[command(name = "etcd-operator", version, about, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the controllers of EtcdCluster, EtcdBackup and EtcdRestore.
    Manager(Box<ManagerArgs>),
    /// Print the CustomResourceDefinitions as YAML, ready for `kubectl apply --server-side -f -`.
    Crds,
    /// Print version, commit, Rust and API versions.
    Version,
}

/// Flags of `etcd-operator manager`.
#[derive(Clone, Debug, Args)]
pub struct ManagerArgs {
    /// The operator's own namespace: where its lease is and, unless told otherwise, what it watches. Default: the
    /// namespace of the pod, or of the kubeconfig's context.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME")]
    pub namespace: Option<String>,

    /// Watch these namespaces instead of the operator's own, separated by commas.
    #[arg(
        long,
        env = "ETCD_OPERATOR_WATCH_NAMESPACES",
        value_name = "A,B",
        value_delimiter = ',',
        conflicts_with = "cluster_wide"
    )]
    pub watch_namespaces: Vec<String>,

    /// Watch all namespaces. Serves EtcdClusters annotated etcd.database.coreos.com/scope: clusterwide.
    #[arg(long, env = "ETCD_OPERATOR_CLUSTER_WIDE", num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub cluster_wide: bool,

    /// With --cluster-wide: whether only annotated EtcdClusters are served. With false all are.
    #[arg(long, env = "ETCD_OPERATOR_REQUIRE_SCOPE_ANNOTATION", num_args = 0..=1, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    pub require_scope_annotation: bool,

    /// Where /healthz, /readyz and /metrics are served.
    #[arg(
        long,
        env = "ETCD_OPERATOR_HEALTH_ADDRESS",
        value_name = "HOST:PORT",
        default_value = "0.0.0.0:8080"
    )]
    pub health_address: SocketAddr,

    /// Whether several processes elect the one that writes. Switch it off only where there is a single process.
    #[arg(long, env = "ETCD_OPERATOR_LEADER_ELECT", num_args = 0..=1, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    pub leader_elect: bool,

    /// The name of the lease; with the namespace it names this installation in status.controlledBy.
    #[arg(
        long,
        env = "ETCD_OPERATOR_LEASE_NAME",
        value_name = "NAME",
        default_value = "etcd-operator"
    )]
    pub lease_name: String,

    /// The name of this process in lease and Events. Default: the host name.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub pod_name: Option<String>,

    /// How many objects of one kind are reconciled at once.
    #[arg(long, env = "ETCD_OPERATOR_CONCURRENCY", value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,

    /// Logs for people or for programs.
    #[arg(
        long,
        env = "ETCD_OPERATOR_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "human"
    )]
    pub log_format: LogFormat,

    /// Least level that is logged (error, warn, info, debug, trace), or a filter by module.
    #[arg(
        long,
        env = "ETCD_OPERATOR_LOG_LEVEL",
        value_name = "LEVEL",
        default_value = "info"
    )]
    pub log_level: String,
}

/// The form of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text each.
    Human,
    /// One JSON object each.
    Json,
}

impl ManagerArgs {
    /// Which namespaces are watched, given the operator's own.
    pub fn watched(&self, own: &str) -> Scope {
        let listed: BTreeSet<String> = self
            .watch_namespaces
            .iter()
            .map(|n| n.trim().to_owned())
            .filter(|n| !n.is_empty())
            .collect();
        match (self.cluster_wide, listed.is_empty()) {
            (true, _) => Scope::All,
            (false, true) => Scope::Namespaces([own.to_owned()].into()),
            (false, false) => Scope::Namespaces(listed),
        }
    }

    /// Which of the objects in sight are served.
    pub fn scope_rule(&self) -> ScopeRule {
        match (self.cluster_wide, self.require_scope_annotation) {
            (false, _) => ScopeRule::Namespaced,
            (true, true) => ScopeRule::ClusterWide,
            (true, false) => ScopeRule::Everything,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn manager(flags: &[&str]) -> Result<ManagerArgs, clap::Error> {
        let line = ["etcd-operator", "manager"]
            .into_iter()
            .chain(flags.iter().copied());
        Cli::try_parse_from(line).map(|cli| match cli.command {
            Command::Manager(args) => *args,
            other => panic!("{other:?}"),
        })
    }

    fn namespaces(names: &[&str]) -> Scope {
        Scope::Namespaces(names.iter().map(|n| (*n).to_owned()).collect())
    }

    #[test]
    fn scope_flags_say_what_is_watched_and_what_is_served() {
        let check = |flags: &[&str], scope: Scope, rule: ScopeRule| {
            let args = manager(flags).expect("valid flags");
            assert_eq!(
                (args.watched("own"), args.scope_rule()),
                (scope, rule),
                "{flags:?}"
            );
        };
        check(&[], namespaces(&["own"]), ScopeRule::Namespaced);
        check(
            &["--watch-namespaces", "a, b,,a"],
            namespaces(&["a", "b"]),
            ScopeRule::Namespaced,
        );
        check(
            &["--watch-namespaces="],
            namespaces(&["own"]),
            ScopeRule::Namespaced,
        );
        check(&["--cluster-wide"], Scope::All, ScopeRule::ClusterWide);
        check(
            &["--cluster-wide=true", "--require-scope-annotation=false"],
            Scope::All,
            ScopeRule::Everything,
        );
        check(
            &["--cluster-wide=false"],
            namespaces(&["own"]),
            ScopeRule::Namespaced,
        );
    }

    #[test]
    fn contradictions_and_nonsense_are_refused_by_name() {
        for (flags, word) in [
            (
                &["--cluster-wide", "--watch-namespaces", "a"][..],
                "--watch-namespaces",
            ),
            (&["--health-address", "here"], "--health-address"),
            (&["--concurrency", "0"], "--concurrency"),
            (&["--log-format", "xml"], "--log-format"),
            (&["--no-such-flag"], "--no-such-flag"),
        ] {
            let error = manager(flags).expect_err("refused").to_string();
            assert!(error.contains(word), "{flags:?}: {error}");
        }
    }

    #[test]
    fn every_flag_is_documented_and_has_an_environment_variable() {
        let mut cli = Cli::command();
        cli.build();
        let manager = cli.find_subcommand("manager").expect("the command");
        for flag in manager
            .get_arguments()
            .filter(|a| !["help", "version"].contains(&a.get_id().as_str()))
        {
            assert!(flag.get_help().is_some(), "{} has no help", flag.get_id());
            assert!(
                flag.get_env().is_some(),
                "{} has no environment variable",
                flag.get_id()
            );
        }
    }
}
