//! The stores against servers that run in this process and can be told to fail. What real servers do is tried in the
//! test bed; here is what no real server does on demand.

mod conformance;
mod directory;
mod faults;
mod identities;
mod oss_signature;
mod quirks;
mod stores;
mod tls;
mod wrong;
