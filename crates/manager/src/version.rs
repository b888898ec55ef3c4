//! Version information of the binary.

use etcd_operator_api as api;

/// The version of the operator.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit of the build.
pub const COMMIT: &str = env!("ETCD_OPERATOR_COMMIT");
/// The compiler of the build.
pub const RUST: &str = env!("ETCD_OPERATOR_RUST");

/// What `etcd-operator version` prints.
pub fn text() -> String {
    format!(
        "etcd-operator {VERSION}\ncommit        {COMMIT}\nrust          {RUST}\napi           {}/{}\ncontract      {}\n",
        api::GROUP,
        api::VERSION,
        api::contract::VERSION,
    )
}
