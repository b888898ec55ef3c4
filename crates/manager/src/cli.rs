//! Commands, flags and environment. Whatever can be set is documented here and shown by `--help`.

use std::{collections::BTreeSet, ffi::OsString, net::SocketAddr};

use clap::{ArgAction, Args, CommandFactory as _, Parser, Subcommand, ValueEnum, error::ErrorKind};
use etcd_operator_api::scope::ScopeRule;
use etcd_operator_cluster::build::OperatorImage;
use etcd_operator_runtime::informer::Scope;

use crate::dry_run::RestoreArgs;
use crate::jobs::args::{BackupArgs, FetchArgs, InspectArgs, ListArgs, OrderedArgs, PruneArgs};
use crate::pod::{InstallArgs, MemberArgs, ReadyArgs, TidyArgs};
use crate::values;

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
    /// In a pod of etcd: judge the disk, wait for a permit if it must, and become etcd.
    Member(Box<MemberArgs>),
    /// In a pod of etcd: remove what a restore set aside when its time is over. The member starts it by itself.
    #[command(hide = true)]
    Tidy(TidyArgs),
    /// In a pod of etcd: exit 0 if the member votes and answers a linearizable read.
    Ready(ReadyArgs),
    /// In a pod of etcd: copy this program to where the container of etcd finds it.
    Install(InstallArgs),
    /// Store a verified backup of an etcd cluster, as an order or the flags say.
    Backup(Box<BackupArgs>),
    /// List stored backups.
    List(Box<ListArgs>),
    /// Delete what an order does not keep of the backups that one EtcdBackup made.
    Prune(PruneArgs),
    /// Read a stored backup from end to end and tell what it holds, as an order says.
    Verify(OrderedArgs),
    /// Compare what a cluster serves with what a backup holds, as an order says.
    Compare(OrderedArgs),
    /// Fetch a stored backup as a plain snapshot, whatever its form; or, as an order says, onto a member's volume.
    Fetch(Box<FetchArgs>),
    /// Tell what is in a snapshot, a copy of a database, or a stored backup.
    Inspect(Box<InspectArgs>),
    /// With --dry-run: tell what a restore would do, which backup it takes, what it replaces, and whether it may.
    Restore(Box<RestoreArgs>),
    /// Print the CustomResourceDefinitions as YAML, ready for `kubectl apply --server-side -f -`.
    Crds,
    /// Print version, commit, Rust and API versions.
    Version,
}

/// Flags of `etcd-operator manager`.
#[derive(Clone, Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
pub struct ManagerArgs {
    /// The operator's own namespace: where its lease is and, unless told otherwise, what it watches. Default: the
    /// namespace of the pod, or of the kubeconfig's context.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME", value_parser = values::namespace)]
    pub namespace: Option<String>,

    /// Watch these namespaces instead of the operator's own, separated by commas.
    #[arg(
        long,
        env = "ETCD_OPERATOR_WATCH_NAMESPACES",
        value_name = "A,B",
        value_delimiter = ',',
        value_parser = values::namespace
    )]
    pub watch_namespaces: Vec<String>,

    /// Watch all namespaces. Serves EtcdClusters annotated etcd.database.coreos.com/scope: clusterwide.
    #[arg(long, env = "ETCD_OPERATOR_CLUSTER_WIDE", value_name = "true|false", value_parser = values::off, num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub cluster_wide: bool,

    /// With --cluster-wide: whether only annotated EtcdClusters are served. With false all are.
    #[arg(long, env = "ETCD_OPERATOR_REQUIRE_SCOPE_ANNOTATION", value_name = "true|false", value_parser = values::on, num_args = 0..=1, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    pub require_scope_annotation: bool,

    /// Watch nodes, so that a member whose node is gone or silent for longer than spec.recovery.replaceAfter is given up
    /// even where nothing deletes its pod. Needs the right to read nodes, which are in no namespace.
    #[arg(long, env = "ETCD_OPERATOR_WATCH_NODES", value_name = "true|false", value_parser = values::off, num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub watch_nodes: bool,

    /// Where /healthz, /readyz and /metrics are served.
    #[arg(
        long,
        env = "ETCD_OPERATOR_HEALTH_ADDRESS",
        value_name = "IP:PORT",
        value_parser = values::address,
        default_value = values::HEALTH_ADDRESS
    )]
    pub health_address: SocketAddr,

    /// Whether several processes elect the one that writes. Switch it off only where there is a single process.
    #[arg(long, env = "ETCD_OPERATOR_LEADER_ELECT", value_name = "true|false", value_parser = values::on, num_args = 0..=1, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    pub leader_elect: bool,

    /// The name of the lease; with the namespace it names this installation in status.controlledBy.
    #[arg(
        long,
        env = "ETCD_OPERATOR_LEASE_NAME",
        value_name = "NAME",
        value_parser = values::lease,
        default_value = values::LEASE
    )]
    pub lease_name: String,

    /// The name of this process in lease and Events. Default: the host name.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub pod_name: Option<String>,

    /// The operator's own image, from which each member's pod takes the program that guards etcd. Without it no member
    /// is run, and every EtcdCluster says so.
    #[arg(long, env = "OPERATOR_IMAGE", value_name = "IMAGE", value_parser = values::image)]
    pub operator_image: Option<String>,

    /// How many objects of one kind are reconciled at once.
    #[arg(long, env = "ETCD_OPERATOR_CONCURRENCY", value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,

    /// How many Jobs of EtcdBackups run at once, over all of them. What is due beyond that waits for its turn.
    #[arg(long, env = "ETCD_OPERATOR_MAX_BACKUP_JOBS", value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub max_backup_jobs: u16,

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
        value_parser = values::log_level,
        default_value = values::LOG_LEVEL
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

impl Cli {
    /// Reads a command line and the environment; what contradicts itself is an error too.
    pub fn read(line: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let cli = Self::try_parse_from(line)?;
        if let Command::Manager(args) = &cli.command
            && let Some(contradiction) = args.contradiction()
        {
            return Err(Self::command().error(ErrorKind::ArgumentConflict, contradiction));
        }
        Ok(cli)
    }
}

impl ManagerArgs {
    /// The namespaces named on the command line or in the environment.
    fn listed(&self) -> BTreeSet<String> {
        let named = self.watch_namespaces.iter().filter(|name| !name.is_empty());
        named.cloned().collect()
    }

    fn contradiction(&self) -> Option<&'static str> {
        if self.cluster_wide && !self.listed().is_empty() {
            return Some(
                "--watch-namespaces (ETCD_OPERATOR_WATCH_NAMESPACES) names some namespaces and --cluster-wide (ETCD_OPERATOR_CLUSTER_WIDE) asks for all: leave out one of them",
            );
        }
        if !self.cluster_wide && !self.require_scope_annotation {
            return Some(
                "--require-scope-annotation=false (ETCD_OPERATOR_REQUIRE_SCOPE_ANNOTATION) has an effect only together with --cluster-wide (ETCD_OPERATOR_CLUSTER_WIDE): leave it out, or add --cluster-wide",
            );
        }
        None
    }

    /// Which namespaces are watched, given the operator's own.
    pub fn watched(&self, own: &str) -> Scope {
        let listed = self.listed();
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

impl ManagerArgs {
    /// The operator's own image, if somebody said which it is.
    pub fn operator_image(&self) -> Option<OperatorImage> {
        self.operator_image.as_deref()?.parse().ok()
    }

    /// What is watched and what is served, in words.
    pub fn business(&self, own: &str) -> (String, String) {
        let watched = match self.watched(own) {
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
        let line = ["etcd-operator", "manager"]
            .into_iter()
            .chain(flags.iter().copied());
        Cli::read(line).map(|cli| match cli.command {
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
    fn what_is_watched_and_served_is_said_in_words() {
        let said = |flags: &[&str]| manager(flags).expect("valid flags").business("own");
        assert_eq!(
            said(&["--watch-namespaces=b,a"]),
            (
                "namespaces a, b".to_owned(),
                "objects without the annotation etcd.database.coreos.com/scope".to_owned()
            )
        );
        assert_eq!(said(&[]).0, "namespace own");
        assert_eq!(
            said(&["--cluster-wide"]),
            (
                "all namespaces".to_owned(),
                "objects annotated etcd.database.coreos.com/scope: clusterwide".to_owned()
            )
        );
        let all = said(&["--cluster-wide", "--require-scope-annotation=false"]);
        assert_eq!(all.1, "all objects");
    }

    #[test]
    fn the_operators_image_is_known_only_if_somebody_says_it() {
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
    fn contradictions_and_nonsense_are_refused_by_name() {
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
