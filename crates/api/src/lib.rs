//! The API of the operator: `EtcdCluster`, `EtcdBackup` and `EtcdRestore` of group
//! [`GROUP`], version [`VERSION`], and the JSON contracts between the parts of the operator.
//!
//! Pure data: no IO, no clock, no client and none of our other crates, so that anything may depend on it.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`cluster`], [`backup`], [`restore`] | the three kinds: spec, status, admission rules |
//! | [`store`] | where backups lie (S3, ABS, GCS, OSS, a volume), shared by backups and restores |
//! | [`location`] | the same, parsed: one store, bucket and key apart |
//! | [`scope`] | which objects an installation looks after |
//! | [`reference`] | what became of the objects a spec refers to |
//! | [`condition`] | the one condition type and how a list of them changes |
//! | [`names`] | names, labels, annotations, finalizers |
//! | [`refusal`] | why a spec is not acted upon, in words a person can use |
//! | [`version`], [`quantity`], [`span`] | parsed forms of what users write as text |
//! | [`retention`] | which stored backups are kept |
//! | [`contract`] | versioned JSON documents exchanged with the processes in pods |
//! | [`crd`] | the finished `CustomResourceDefinition`s |
//! | [`reserved`] | flags, labels and annotations that belong to the operator |

pub mod backup;
pub mod cluster;
pub mod condition;
pub mod contract;
pub mod crd;
pub mod location;
pub mod names;
pub mod quantity;
pub mod reference;
pub mod refusal;
pub mod reserved;
pub mod restore;
pub mod retention;
pub mod schema;
pub mod scope;
pub mod span;
pub mod store;
pub mod version;

pub use backup::{EtcdBackup, EtcdBackupSpec, EtcdBackupStatus};
pub use cluster::{EtcdCluster, EtcdClusterSpec, EtcdClusterStatus};
pub use condition::Condition;
pub use refusal::Refusal;
pub use restore::{EtcdRestore, EtcdRestoreSpec, EtcdRestoreStatus};

/// The API group of all three kinds.
pub const GROUP: &str = "etcd.database.coreos.com";
/// The served and stored version of all three kinds.
pub const VERSION: &str = "v1beta2";
