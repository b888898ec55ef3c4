//! Flags of the backup commands, and the order that they specify. A controller passes a complete order instead.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use etcd_operator_api::backup::{Compression, Verification};
use etcd_operator_api::contract::{
    self, BackupTask, JobOrder, Limits, Naming, ORDER_VARIABLE, Source, StoreOrder, Task, VERSION,
};
use etcd_operator_api::span::Span;
use etcd_operator_api::store::StorageType;
use etcd_operator_etcd::tool::IN_IMAGES;
use etcd_operator_job::address::Address;
use etcd_operator_job::names::BY_HAND;
use jiff::Timestamp;

use crate::cli::LogFormat;
use crate::values;

/// Default timeout of a backup started by hand.
const DEFAULT_TIMEOUT: &str = "1h";

/// How to connect to a store.
#[derive(Clone, Debug, Args)]
pub struct StoreArgs {
    /// A directory with the credentials of the store, one file per key, named as in the Secrets of EtcdBackups. Default: the
    /// identity of the platform.
    #[arg(long, value_name = "DIR")]
    pub store_secret: Option<String>,

    /// A directory with the file ca.crt, the CA certificate of the store.
    #[arg(long, value_name = "DIR")]
    pub store_ca: Option<String>,

    /// The endpoint of the store, if it is not the default of its type.
    #[arg(long, value_name = "URL")]
    pub store_endpoint: Option<String>,

    /// The region of the bucket.
    #[arg(long, value_name = "REGION")]
    pub store_region: Option<String>,

    /// Use path-style addressing, as most S3-compatible stores outside AWS require.
    #[arg(long)]
    pub path_style: bool,

    /// A directory with encryption keys: one file per key with 32 bytes, named by the key ID.
    #[arg(long, value_name = "DIR")]
    pub keys: Option<String>,
}

impl StoreArgs {
    /// The order for all objects with this prefix. A local directory means its contents.
    pub fn prefix_order(&self, url: &str) -> Result<StoreOrder> {
        let order = self.order(url)?;
        let is_directory = order.kind == StorageType::Local
            && !order.path.is_empty()
            && Path::new(&order.bucket).join(&order.path).is_dir();
        if is_directory {
            return self.order(&format!("{url}/"));
        }
        Ok(order)
    }

    /// The order for the location of a URL.
    pub fn order(&self, url: &str) -> Result<StoreOrder> {
        let directory = std::env::current_dir().context("cannot determine the current directory")?;
        let address = Address::parse(url, &directory.display().to_string())?;
        Ok(StoreOrder {
            endpoint: self.store_endpoint.clone(),
            path_style: self.path_style,
            region: self.store_region.clone(),
            secret: self.store_secret.clone(),
            ca: self.store_ca.clone(),
            ..address.order()
        })
    }
}

/// The order, its result, and logging.
#[derive(Clone, Debug, Args)]
pub struct OrderArgs {
    /// The order as a JSON document: a file, or the document itself.
    #[arg(long, env = ORDER_VARIABLE, hide_env_values = true, value_name = "FILE|JSON")]
    pub order: Option<String>,

    /// The file to which the result is written as JSON. Default: the pod's termination message file, if it exists.
    #[arg(long, value_name = "FILE")]
    pub result: Option<PathBuf>,

    /// The format of logs.
    #[arg(
        long,
        env = "ETCD_OPERATOR_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "human"
    )]
    pub log_format: LogFormat,

    /// The log level (error, warn, info, debug, trace), or a filter by module.
    #[arg(long, env = "ETCD_OPERATOR_LOG_LEVEL", value_name = "LEVEL", value_parser = values::parse_log_level, default_value = values::DEFAULT_LOG_LEVEL)]
    pub log_level: String,
}

impl OrderArgs {
    /// Reads the order: a text that begins with a brace, or a file. `None` if neither the flag nor the variable is set.
    pub fn read(&self) -> Result<Option<JobOrder>> {
        let Some(order) = self
            .order
            .as_deref()
            .map(str::trim)
            .filter(|text| !text.is_empty())
        else {
            return Ok(None);
        };
        let bytes = if order.starts_with('{') {
            order.as_bytes().to_vec()
        } else {
            std::fs::read(order).with_context(|| format!("cannot read --order {order}"))?
        };
        Ok(Some(contract::read(&bytes)?))
    }
}

/// How a backup is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VerificationLevel {
    /// Check etcd's hash, the store's checksums, and both ends of the database.
    Checksum,
    /// Also read every byte back and check every page of the database.
    Full,
    /// Also restore the backup with etcd's tool, start etcd, and compare the served data.
    Restore,
}

/// Flags of `etcd-operator backup`.
#[derive(Clone, Debug, Args)]
pub struct BackupArgs {
    #[command(flatten)]
    pub(crate) order: OrderArgs,

    /// The location of the backup: s3://BUCKET/KEY, likewise with oss://, gs:// or abs://, or a path.
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "order",
        required_unless_present = "order"
    )]
    pub to: Option<String>,

    /// The client URL of a member; can be repeated. One member that answers suffices.
    #[arg(
        long = "endpoint",
        value_name = "URL",
        conflicts_with = "order",
        required_unless_present = "order"
    )]
    pub endpoints: Vec<String>,

    /// A directory with etcd-client-ca.crt and, if etcd requires client certificates, etcd-client.crt and etcd-client.key.
    #[arg(long, value_name = "DIR")]
    pub client_tls: Option<String>,

    /// The server name in the members' certificates, if it differs from the host.
    #[arg(long, value_name = "NAME", requires = "client_tls")]
    pub client_server_name: Option<String>,

    /// A directory with the files username and password, if etcd requires authentication.
    #[arg(long, value_name = "DIR")]
    pub user: Option<String>,

    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Append revision and time to the name.
    #[arg(long)]
    pub periodic: bool,

    /// Compress the backup with Zstandard.
    #[arg(long)]
    pub compress: bool,

    /// How the backup is verified.
    #[arg(long, value_name = "LEVEL", default_value = "checksum")]
    pub verification: VerificationLevel,

    /// The timeout of the backup.
    #[arg(long, value_name = "TIME", default_value = DEFAULT_TIMEOUT)]
    pub timeout: String,

    /// Replace an existing backup, and allow backups of other clusters at the same location.
    #[arg(long)]
    pub replace: bool,

    /// The directory to which the backup is downloaded for verification. Default: the directory for temporary files.
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,

    /// The directory with the etcd programs for --verification restore: etcd and etcdutl (before 3.5: etcdctl).
    #[arg(long, value_name = "DIR", default_value = IN_IMAGES)]
    pub etcd_programs: PathBuf,
}

impl BackupArgs {
    /// The order that was passed, or the one that the flags specify.
    pub fn into_order(self, now: Timestamp) -> Result<JobOrder> {
        if let Some(order) = self.order.read()? {
            return Ok(order);
        }
        let timeout: Span = self.timeout.parse().context("--timeout")?;
        let deadline = now
            .checked_add(timeout.0)
            .with_context(|| format!("--timeout {}", self.timeout))?;
        let store = self.store.order(self.to.as_deref().unwrap_or_default())?;
        if store.path.is_empty() {
            bail!("--to must contain an object key; for example: s3://my-bucket/etcd/orders");
        }
        if store.kind == StorageType::Local && !Path::new(&store.bucket).is_dir() {
            bail!(
                "--to: the directory {0} does not exist; create it first: mkdir -p {0}",
                store.bucket
            );
        }
        let task = BackupTask {
            source: Source {
                endpoints: self.endpoints,
                tls: self.client_tls,
                server_name: self.client_server_name,
                user: self.user,
            },
            cluster_id: None,
            incarnation: None,
            naming: if self.periodic {
                Naming::Periodic
            } else {
                Naming::OneShot
            },
            compression: if self.compress {
                Compression::Zstd
            } else {
                Compression::None
            },
            keys: self.store.keys,
            verification: match self.verification {
                VerificationLevel::Checksum => Verification::Checksum,
                VerificationLevel::Full => Verification::Full,
                VerificationLevel::Restore => Verification::Restore,
            },
            deadline,
            limits: Limits::default(),
            allow_others: self.replace,
        };
        Ok(JobOrder {
            version: VERSION,
            run: format!("{now}/{BY_HAND}"),
            owner_uid: BY_HAND.to_owned(),
            store,
            task: Task::Backup(Box::new(task)),
        })
    }
}

/// Flags of `etcd-operator prune`.
#[derive(Clone, Debug, Args)]
pub struct PruneArgs {
    #[command(flatten)]
    pub(crate) order: OrderArgs,
}

/// Flags of `etcd-operator verify` and `etcd-operator compare`, which only run an order.
#[derive(Clone, Debug, Args)]
pub struct OrderOnlyArgs {
    #[command(flatten)]
    pub(crate) order: OrderArgs,
}

/// Flags of `etcd-operator list`.
#[derive(Clone, Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub(crate) order: OrderArgs,

    /// The URL prefix of the backups to list.
    #[arg(
        value_name = "URL",
        conflicts_with = "order",
        required_unless_present = "order"
    )]
    pub url: Option<String>,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// Flags of `etcd-operator fetch`.
#[derive(Clone, Debug, Args)]
pub struct FetchArgs {
    #[command(flatten)]
    pub(crate) order: OrderArgs,

    /// The backup: s3://BUCKET/KEY, likewise with oss://, gs:// or abs://, or a path.
    #[arg(
        value_name = "URL",
        conflicts_with = "order",
        required_unless_present = "order",
        requires = "file"
    )]
    pub url: Option<String>,

    /// The file for the plain snapshot. An interrupted download is resumed.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Overwrite FILE.
    #[arg(long, conflicts_with = "order")]
    pub force: bool,

    /// Allow a backup with neither a manifest nor etcd's hash, whose integrity cannot be verified.
    #[arg(long, conflicts_with = "order")]
    pub without_hash: bool,

    /// The UID of the pod, which identifies it in its progress report.
    #[arg(long, env = "POD_UID", value_name = "UID", hide = true)]
    pub pod_uid: Option<String>,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// Flags of `etcd-operator inspect`.
#[derive(Clone, Debug, Args)]
pub struct InspectArgs {
    /// A snapshot, a copy of etcd's database file, or the URL of a backup.
    #[arg(value_name = "FILE|URL")]
    pub what: String,

    /// Read every byte, check the hash and every page, and count all keys.
    #[arg(long)]
    pub full: bool,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,

    /// The directory to which a stored backup is downloaded for --full. Default: the directory for temporary files.
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};

    fn order(flags: &[&str]) -> Result<JobOrder> {
        let line = ["etcd-operator", "backup"]
            .into_iter()
            .chain(flags.iter().copied());
        match Cli::read(line)?.command {
            Command::Backup(args) => args.into_order(Timestamp::UNIX_EPOCH),
            other => bail!("{other:?}"),
        }
    }

    #[test]
    fn flags_make_the_same_order_as_a_controller() {
        let flags = [
            "--endpoint",
            "http://a:2379",
            "--endpoint",
            "http://b:2379",
            "--to",
        ];
        let more = [
            "s3://bucket/etcd/orders",
            "--path-style",
            "--store-secret",
            "/aws",
            "--compress",
        ];
        let order =
            order(&[&flags[..], &more, &["--timeout", "10m", "--periodic"]].concat()).expect("an order");
        assert_eq!(
            (order.store.bucket.as_str(), order.store.path.as_str()),
            ("bucket", "etcd/orders")
        );
        assert_eq!(
            (order.store.path_style, order.store.secret.as_deref()),
            (true, Some("/aws"))
        );
        let Task::Backup(task) = order.task else {
            panic!("{:?}", order.task);
        };
        assert_eq!(task.source.endpoints, ["http://a:2379", "http://b:2379"]);
        assert_eq!(
            (task.naming, task.compression),
            (Naming::Periodic, Compression::Zstd)
        );
        assert_eq!(task.deadline.as_second(), 600);
    }

    #[test]
    fn a_url_without_key_and_flags_combined_with_an_order_are_rejected() {
        let bucket = ["--endpoint", "http://a:2379", "--to", "s3://bucket"];
        let error = order(&bucket).expect_err("refused").to_string();
        assert!(error.contains("--to must contain an object key"), "{error}");
        let both = ["--order", "{}", "--to", "s3://b/k", "--endpoint", "http://a:2379"];
        assert!(order(&both).is_err());
        assert!(order(&["--order", "{\"version\": 1}"]).is_err());
    }
}
