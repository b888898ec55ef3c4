//! Flags of the commands about backups, and the order they stand for. A controller hands over a whole order instead.

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

/// How long a backup by hand may take.
const TIMEOUT: &str = "1h";

/// How a store is reached.
#[derive(Clone, Debug, Args)]
pub struct StoreArgs {
    /// A directory with the store's credentials, one file per key, named as in the Secrets of EtcdBackups. Without it
    /// the platform's identity is used.
    #[arg(long, value_name = "DIR")]
    pub store_secret: Option<String>,

    /// A directory with the file ca.crt, which signs the certificate of the store.
    #[arg(long, value_name = "DIR")]
    pub store_ca: Option<String>,

    /// The address of a store that is not where its kind usually is.
    #[arg(long, value_name = "URL")]
    pub store_endpoint: Option<String>,

    /// The region of the bucket.
    #[arg(long, value_name = "REGION")]
    pub store_region: Option<String>,

    /// Put the bucket into the path, as most S3 stores outside Amazon need it.
    #[arg(long)]
    pub path_style: bool,

    /// A directory with the keys that open and seal backups: each file holds the 32 bytes of one, under its id.
    #[arg(long, value_name = "DIR")]
    pub keys: Option<String>,
}

impl StoreArgs {
    /// The same for everything that begins so: a directory here means what lies in it.
    pub fn prefix(&self, url: &str) -> Result<StoreOrder> {
        let order = self.order(url)?;
        let is_directory = order.kind == StorageType::Local
            && !order.path.is_empty()
            && Path::new(&order.bucket).join(&order.path).is_dir();
        if is_directory {
            return self.order(&format!("{url}/"));
        }
        Ok(order)
    }

    /// The place that an address means, reached this way.
    pub fn order(&self, url: &str) -> Result<StoreOrder> {
        let directory = std::env::current_dir().context("cannot tell where this is")?;
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

/// Where an order is, what is said of it and where.
#[derive(Clone, Debug, Args)]
pub struct OrderArgs {
    /// What to do, as one JSON document: a file, or the document itself.
    #[arg(long, env = ORDER_VARIABLE, hide_env_values = true, value_name = "FILE|JSON")]
    pub order: Option<String>,

    /// The file that is given the result as JSON. Default: the pod's termination message, if there is one.
    #[arg(long, value_name = "FILE")]
    pub result: Option<PathBuf>,

    /// Logs for people or for programs.
    #[arg(
        long,
        env = "ETCD_OPERATOR_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "human"
    )]
    pub log_format: LogFormat,

    /// Least level that is logged (error, warn, info, debug, trace), or a filter by module.
    #[arg(long, env = "ETCD_OPERATOR_LOG_LEVEL", value_name = "LEVEL", value_parser = values::log_level, default_value = values::LOG_LEVEL)]
    pub log_level: String,
}

impl OrderArgs {
    /// The order, if there is one.
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
            std::fs::read(order).with_context(|| format!("--order {order} cannot be read"))?
        };
        Ok(Some(contract::read(&bytes)?))
    }
}

/// How a backup is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Check {
    /// etcd's own hash, the store's checksums, and the ends of the database.
    Checksum,
    /// Every byte is read back and every page is walked.
    Full,
    /// Besides, it is restored by etcd's own program, started, and what it serves is compared.
    Restore,
}

/// Flags of `etcd-operator backup`.
#[derive(Clone, Debug, Args)]
pub struct BackupArgs {
    #[command(flatten)]
    pub(crate) order: OrderArgs,

    /// Where the backup goes: s3://BUCKET/KEY, oss://, gs:// or abs:// likewise, or a path.
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "order",
        required_unless_present = "order"
    )]
    pub to: Option<String>,

    /// A member of etcd; repeat it for more. Any one that answers suffices.
    #[arg(
        long = "endpoint",
        value_name = "URL",
        conflicts_with = "order",
        required_unless_present = "order"
    )]
    pub endpoints: Vec<String>,

    /// A directory with etcd-client-ca.crt and, where etcd asks for them, etcd-client.crt and etcd-client.key.
    #[arg(long, value_name = "DIR")]
    pub client_tls: Option<String>,

    /// The name that members' certificates bear, where that is not the host that is asked.
    #[arg(long, value_name = "NAME", requires = "client_tls")]
    pub client_server_name: Option<String>,

    /// A directory with the files username and password, where etcd asks for them.
    #[arg(long, value_name = "DIR")]
    pub user: Option<String>,

    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Add revision and time to the name.
    #[arg(long)]
    pub periodic: bool,

    /// Compress by Zstandard.
    #[arg(long)]
    pub compress: bool,

    /// How the backup is checked before it counts.
    #[arg(long, value_name = "LEVEL", default_value = "checksum")]
    pub verification: Check,

    /// How long it may take.
    #[arg(long, value_name = "TIME", default_value = TIMEOUT)]
    pub timeout: String,

    /// Replace what is there, and share the place with backups of other clusters.
    #[arg(long)]
    pub replace: bool,

    /// Where a backup is laid out to be checked. Default: the directory for temporary files.
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,

    /// The directory with etcd's own programs, for --verification restore: etcd, and etcdutl or before 3.5 etcdctl.
    #[arg(long, value_name = "DIR", default_value = IN_IMAGES)]
    pub etcd_programs: PathBuf,
}

impl BackupArgs {
    /// The order: as it was handed over, or as the flags say.
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
            bail!("--to names a bucket and no object; for example: s3://my-bucket/etcd/orders");
        }
        if store.kind == StorageType::Local && !Path::new(&store.bucket).is_dir() {
            bail!(
                "--to: there is no directory {0}; make it first: mkdir -p {0}",
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
                Check::Checksum => Verification::Checksum,
                Check::Full => Verification::Full,
                Check::Restore => Verification::Restore,
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

/// Flags of `etcd-operator verify` and `etcd-operator compare`, which are done by an order alone.
#[derive(Clone, Debug, Args)]
pub struct OrderedArgs {
    #[command(flatten)]
    pub(crate) order: OrderArgs,
}

/// Flags of `etcd-operator list`.
#[derive(Clone, Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub(crate) order: OrderArgs,

    /// What is listed: everything whose address begins so.
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

    /// The backup: s3://BUCKET/KEY, oss://, gs:// or abs:// likewise, or a path.
    #[arg(
        value_name = "URL",
        conflicts_with = "order",
        required_unless_present = "order",
        requires = "file"
    )]
    pub url: Option<String>,

    /// The file that becomes a plain snapshot. If it was cut off, what is there is not fetched again.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Overwrite FILE.
    #[arg(long, conflicts_with = "order")]
    pub force: bool,

    /// Fetch what has neither manifest nor a hash of etcd behind it, so that nobody can tell whether it is whole.
    #[arg(long, conflicts_with = "order")]
    pub without_hash: bool,

    /// The UID of the pod, by which whoever asks how far it is knows that it asked the right one.
    #[arg(long, env = "POD_UID", value_name = "UID", hide = true)]
    pub pod_uid: Option<String>,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// Flags of `etcd-operator inspect`.
#[derive(Clone, Debug, Args)]
pub struct InspectArgs {
    /// A snapshot, a copy of etcd's own database, or the address of a backup.
    #[arg(value_name = "FILE|URL")]
    pub what: String,

    /// Read every byte, compare the hash, walk every page and count all keys.
    #[arg(long)]
    pub full: bool,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,

    /// Where a stored backup is laid out for --full. Default: the directory for temporary files.
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
    fn flags_by_hand_make_the_order_a_controller_would_give() {
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
    fn a_place_that_is_none_and_flags_beside_an_order_are_refused() {
        let bucket = ["--endpoint", "http://a:2379", "--to", "s3://bucket"];
        let why = order(&bucket).expect_err("refused").to_string();
        assert!(why.contains("--to names a bucket and no object"), "{why}");
        let both = ["--order", "{}", "--to", "s3://b/k", "--endpoint", "http://a:2379"];
        assert!(order(&both).is_err());
        assert!(order(&["--order", "{\"version\": 1}"]).is_err());
    }
}
