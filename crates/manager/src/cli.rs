//! Subcommands, flags and environment variables, with the texts of `--help`.

use std::{collections::BTreeSet, ffi::OsString, net::SocketAddr};

use clap::{ArgAction, Args, CommandFactory as _, Parser, Subcommand, ValueEnum, error::ErrorKind};
use etcd_operator_api::cluster::{DefaultRepository, UPSTREAM_REPOSITORY};
use etcd_operator_api::scope::ScopeRule;
use etcd_operator_cluster_core::build::OperatorImage;
use etcd_operator_etcd::policy::IntermediateVersions;
use etcd_operator_runtime::informer::Scope;

use crate::dry_run::RestoreArgs;
use crate::jobs::args::{BackupArgs, FetchArgs, InspectArgs, ListArgs, OrderOnlyArgs, PruneArgs};
use crate::pod::{CheckImageArgs, InstallArgs, MemberArgs, ReadyArgs, TidyArgs};
use crate::values;

/// Runs etcd clusters on Kubernetes, and backs them up and restores them.
#[derive(Debug, Parser)]
#[command(name = "etcd-operator", version, about, max_term_width = 110)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the controllers of EtcdCluster, EtcdBackup and EtcdRestore.
    Manager(Box<ManagerArgs>),
    /// In a member's pod: check the volume, wait for a start permit if required, and exec etcd.
    Member(Box<MemberArgs>),
    /// In a member's pod: delete the data directories that a restore kept once they expire. Started by the member.
    #[command(hide = true)]
    Tidy(TidyArgs),
    /// In a member's pod: exit 0 if the member is a voter and answers a linearizable read.
    Ready(ReadyArgs),
    /// In a Job before a rollout: exit 0 if etcd of this image runs and is of the expected minor version.
    CheckImage(CheckImageArgs),
    /// In a member's pod: copy this program to a volume of the etcd container.
    Install(InstallArgs),
    /// Make a verified backup of an etcd cluster, as specified by an order or by flags.
    Backup(Box<BackupArgs>),
    /// List stored backups.
    List(Box<ListArgs>),
    /// Delete the backups of one EtcdBackup that its order does not keep.
    Prune(PruneArgs),
    /// Verify a whole stored backup and report its content, as specified by an order.
    Verify(OrderOnlyArgs),
    /// Compare the data of a cluster with a backup, as specified by an order.
    Compare(OrderOnlyArgs),
    /// Download a stored backup as a plain etcd snapshot, or onto a member's volume as specified by an order.
    Fetch(Box<FetchArgs>),
    /// Show the content of a snapshot, a copy of an etcd database, or a stored backup.
    Inspect(Box<InspectArgs>),
    /// With --dry-run: show which backup a restore would use, what it would replace, and whether it would be refused.
    Restore(Box<RestoreArgs>),
    /// Print the CustomResourceDefinitions as YAML, ready for `kubectl apply --server-side -f -`.
    Crds,
    /// Print the versions of the operator, its commit, Rust and the API.
    Version,
}

/// Flags of `etcd-operator manager`.
#[derive(Clone, Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches on the command line"
)]
pub struct ManagerArgs {
    /// The operator's own namespace. It contains the lease and is watched by default. Default: the namespace of the pod, or
    /// of the kubeconfig's context.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME", value_parser = values::parse_namespace)]
    pub namespace: Option<String>,

    /// The namespaces to watch instead of the operator's own, separated by commas.
    #[arg(
        long,
        env = "ETCD_OPERATOR_WATCH_NAMESPACES",
        value_name = "A,B",
        value_delimiter = ',',
        value_parser = values::parse_namespace
    )]
    pub watch_namespaces: Vec<String>,

    /// Watch all namespaces, and serve EtcdClusters with the annotation etcd.database.coreos.com/scope: clusterwide.
    #[arg(long, env = "ETCD_OPERATOR_CLUSTER_WIDE", value_name = "true|false", value_parser = values::parse_off_by_default, num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub cluster_wide: bool,

    /// With --cluster-wide: serve only EtcdClusters with the scope annotation. If false, serve all.
    #[arg(long, env = "ETCD_OPERATOR_REQUIRE_SCOPE_ANNOTATION", value_name = "true|false", value_parser = values::parse_on_by_default, num_args = 0..=1, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    pub require_scope_annotation: bool,

    /// Watch nodes. A member is then replaced if its node was deleted or not ready for longer than
    /// spec.recovery.replaceAfter, even if its pod still exists. Requires cluster-wide permission to read nodes.
    #[arg(long, env = "ETCD_OPERATOR_WATCH_NODES", value_name = "true|false", value_parser = values::parse_off_by_default, num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub watch_nodes: bool,

    /// The address that serves /healthz, /readyz and /metrics.
    #[arg(
        long,
        env = "ETCD_OPERATOR_HEALTH_ADDRESS",
        value_name = "IP:PORT",
        value_parser = values::parse_address,
        default_value = values::DEFAULT_HEALTH_ADDRESS
    )]
    pub health_address: SocketAddr,

    /// Elect a leader among several processes; only the leader writes. Disable only if there is a single process.
    #[arg(long, env = "ETCD_OPERATOR_LEADER_ELECT", value_name = "true|false", value_parser = values::parse_on_by_default, num_args = 0..=1, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    pub leader_elect: bool,

    /// The name of the Lease. Namespace and Lease name identify this installation in status.controlledBy.
    #[arg(
        long,
        env = "ETCD_OPERATOR_LEASE_NAME",
        value_name = "NAME",
        value_parser = values::parse_lease,
        default_value = values::DEFAULT_LEASE
    )]
    pub lease_name: String,

    /// The name of this process in the Lease and in Events. Default: the host name.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub pod_name: Option<String>,

    /// The operator's own image. Members' pods copy this program from it, and Jobs run it. Without it no member is started,
    /// and every EtcdCluster reports that.
    #[arg(long, env = "OPERATOR_IMAGE", value_name = "IMAGE", value_parser = values::parse_image)]
    pub operator_image: Option<String>,

    /// The image repository of etcd for each EtcdCluster that sets neither repository nor image: quay.io/coreos/etcd, or a
    /// mirror of it, with the same tags. Another one restarts no member: pods use it from their cluster's next rollout on.
    #[arg(long, env = "ETCD_OPERATOR_ETCD_REPOSITORY", value_name = "REPOSITORY", default_value = UPSTREAM_REPOSITORY, value_parser = values::parse_repository)]
    pub etcd_repository: DefaultRepository,

    /// The maximum number of concurrent reconciles per kind.
    #[arg(long, env = "ETCD_OPERATOR_CONCURRENCY", value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,

    /// The maximum number of concurrent Jobs of all EtcdBackups. Further due backups wait.
    #[arg(long, env = "ETCD_OPERATOR_MAX_BACKUP_JOBS", value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub max_backup_jobs: u16,

    /// The maximum number of EtcdClusters whose members are restarted at the same time, one member each. Further changes wait.
    #[arg(long, env = "ETCD_OPERATOR_MAX_CONCURRENT_ROLLOUTS", value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub max_concurrent_rollouts: u16,

    /// The etcd versions that members run on their way to a later minor version, at most one of each minor version, for example 3.5.35,3.6.16. For other minor versions the newest known one is used.
    #[arg(long, env = "ETCD_OPERATOR_INTERMEDIATE_VERSIONS", value_name = "VERSIONS", default_value = "", value_parser = values::parse_intermediate_versions)]
    pub intermediate_versions: IntermediateVersions,

    /// The format of logs.
    #[arg(
        long,
        env = "ETCD_OPERATOR_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "human"
    )]
    pub log_format: LogFormat,

    /// The log level (error, warn, info, debug, trace), or a filter by module.
    #[arg(
        long,
        env = "ETCD_OPERATOR_LOG_LEVEL",
        value_name = "LEVEL",
        value_parser = values::parse_log_level,
        default_value = values::DEFAULT_LOG_LEVEL
    )]
    pub log_level: String,
}

/// The format of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text per message.
    Human,
    /// One JSON object per message.
    Json,
}

impl Cli {
    /// Parses a command line and the environment. Conflicting flags are an error.
    pub fn read(
        arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let cli = Self::try_parse_from(arguments)?;
        if let Command::Manager(args) = &cli.command
            && let Some(conflict) = args.conflict()
        {
            return Err(Self::command().error(ErrorKind::ArgumentConflict, conflict));
        }
        Ok(cli)
    }
}

impl ManagerArgs {
    /// The namespaces to watch, without empty names.
    fn listed_namespaces(&self) -> BTreeSet<String> {
        let named = self.watch_namespaces.iter().filter(|name| !name.is_empty());
        named.cloned().collect()
    }

    /// Which flags contradict each other; `None` if none do.
    fn conflict(&self) -> Option<&'static str> {
        if self.cluster_wide && !self.listed_namespaces().is_empty() {
            return Some(
                "--watch-namespaces (ETCD_OPERATOR_WATCH_NAMESPACES) and --cluster-wide (ETCD_OPERATOR_CLUSTER_WIDE) exclude each other: remove one of them",
            );
        }
        if !self.cluster_wide && !self.require_scope_annotation {
            return Some(
                "--require-scope-annotation=false (ETCD_OPERATOR_REQUIRE_SCOPE_ANNOTATION) has an effect only with --cluster-wide (ETCD_OPERATOR_CLUSTER_WIDE): remove it, or add --cluster-wide",
            );
        }
        None
    }

    /// The watched namespaces; `own` is the operator's own namespace.
    pub fn watch_scope(&self, own: &str) -> Scope {
        let listed = self.listed_namespaces();
        match (self.cluster_wide, listed.is_empty()) {
            (true, _) => Scope::All,
            (false, true) => Scope::Namespaces([own.to_owned()].into()),
            (false, false) => Scope::Namespaces(listed),
        }
    }

    /// Which watched objects are served: those without the scope annotation, those annotated `clusterwide` (with `--cluster-wide`), or
    /// all (with `--require-scope-annotation=false` too).
    pub fn scope_rule(&self) -> ScopeRule {
        match (self.cluster_wide, self.require_scope_annotation) {
            (false, _) => ScopeRule::Namespaced,
            (true, true) => ScopeRule::ClusterWide,
            (true, false) => ScopeRule::Everything,
        }
    }
}

impl ManagerArgs {
    /// The operator's own image, if it is configured.
    pub fn operator_image(&self) -> Option<OperatorImage> {
        self.operator_image.as_deref()?.parse().ok()
    }

    /// Describes what is watched and what is served, for the log.
    pub fn describe_scope(&self, own: &str) -> (String, String) {
        let watched = match self.watch_scope(own) {
            Scope::All => "all namespaces".to_owned(),
            Scope::Namespaces(names) => {
                let plural = if names.len() == 1 { "" } else { "s" };
                let names: Vec<_> = names.into_iter().collect();
                format!("namespace{plural} {}", names.join(", "))
            }
        };
        (watched, self.scope_rule().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager(flags: &[&str]) -> Result<ManagerArgs, clap::Error> {
        let arguments = ["etcd-operator", "manager"]
            .into_iter()
            .chain(flags.iter().copied());
        Cli::read(arguments).map(|cli| match cli.command {
            Command::Manager(args) => *args,
            other => panic!("{other:?}"),
        })
    }

    fn namespaces(names: &[&str]) -> Scope {
        Scope::Namespaces(names.iter().map(|n| (*n).to_owned()).collect())
    }

    #[test]
    fn scope_flags_determine_watched_namespaces_and_served_objects() {
        let check = |flags: &[&str], scope: Scope, rule: ScopeRule| {
            let args = manager(flags).expect("valid flags");
            assert_eq!(
                (args.watch_scope("own"), args.scope_rule()),
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
        check(
            &["--watch-namespaces", "a", "--cluster-wide=false"],
            namespaces(&["a"]),
            ScopeRule::Namespaced,
        );
        check(
            &["--watch-namespaces=", "--cluster-wide"],
            Scope::All,
            ScopeRule::ClusterWide,
        );
        check(
            &["--watch-namespaces=a", "--cluster-wide="],
            namespaces(&["a"]),
            ScopeRule::Namespaced,
        );
    }

    #[test]
    fn the_scope_is_described() {
        let describe = |flags: &[&str]| manager(flags).expect("valid flags").describe_scope("own");
        assert_eq!(
            describe(&["--watch-namespaces=b,a"]),
            (
                "namespaces a, b".to_owned(),
                "objects without the annotation etcd.database.coreos.com/scope".to_owned()
            )
        );
        assert_eq!(describe(&[]).0, "namespace own");
        assert_eq!(
            describe(&["--cluster-wide"]),
            (
                "all namespaces".to_owned(),
                "objects annotated etcd.database.coreos.com/scope: clusterwide".to_owned()
            )
        );
        let all = describe(&["--cluster-wide", "--require-scope-annotation=false"]);
        assert_eq!(all.1, "all objects");
    }

    #[test]
    fn the_operator_image_is_known_only_if_configured() {
        let image = |flags: &[&str]| manager(flags).expect("valid flags").operator_image();
        assert_eq!(image(&[]), None);
        assert_eq!(image(&["--operator-image="]), None);
        let given = image(&["--operator-image", " registry:5000/operator:1 "]);
        assert_eq!(
            given.map(|i| i.to_string()).as_deref(),
            Some("registry:5000/operator:1")
        );
    }

    #[test]
    fn conflicting_and_invalid_flags_are_rejected_by_name() {
        for (flags, word) in [
            (
                &["--cluster-wide", "--watch-namespaces", "a"][..],
                "--watch-namespaces",
            ),
            (
                &["--cluster-wide", "--watch-namespaces", "a"],
                "ETCD_OPERATOR_CLUSTER_WIDE",
            ),
            (
                &["--require-scope-annotation=false"],
                "--require-scope-annotation=false",
            ),
            (&["--cluster-wide=maybe"], "--cluster-wide"),
            (&["--namespace", "Shop"], "for example: shop"),
            (&["--watch-namespaces", "a,B"], "for example: shop"),
            (&["--lease-name", "Bad Name/x"], "for example: etcd-operator"),
            (&["--log-level", "loud"], "--log-level"),
            (&["--health-address", "localhost:80"], "is not IP:PORT"),
            (&["--health-address", "here"], "--health-address"),
            (&["--operator-image", "a b"], "for example: registry"),
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
