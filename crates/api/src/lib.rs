//! The API of the operator: `EtcdCluster`, `EtcdBackup` and `EtcdRestore` of group
//! [`GROUP`], version [`VERSION`], and the JSON contracts between the parts of the operator.
//!
//! Pure data: no IO, no clock, no client and no other crate of this workspace. Every crate may therefore depend on it.
//!
//! | module | content |
//! | --- | --- |
//! | [`cluster`], [`backup`], [`restore`] | the three kinds: spec, status, admission rules |
//! | [`store`] | store settings (S3, ABS, GCS, OSS, volume) that backups and restores share |
//! | [`location`] | parsed store settings: one store, with bucket and key |
//! | [`scope`] | which objects an installation serves |
//! | [`reference`] | whether the objects that a spec references exist |
//! | [`condition`] | the condition type and how a list of conditions is updated |
//! | [`names`] | names, labels, annotations, finalizers, ports |
//! | [`refusal`] | why a spec is refused, by field |
//! | [`version`], [`quantity`], [`span`] | parsed forms of versions, quantities and durations |
//! | [`retention`] | which stored backups are kept |
//! | [`contract`] | versioned JSON documents exchanged with the processes in pods |
//! | [`hash`] | hashes that stay the same from version to version |
//! | [`severity`], [`unscheduled`] | the type of an Event; pods for which the scheduler finds no node |
//! | [`crd`] | the complete `CustomResourceDefinition`s |
//! | [`reserved`] | flags, labels, annotations and variables that only the operator may set |

pub mod backup;
pub mod cluster;
pub mod condition;
pub mod contract;
pub mod crd;
pub mod hash;
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
pub mod severity;
pub mod span;
pub mod store;
pub mod unscheduled;
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
