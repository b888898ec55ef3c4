//! The port to etcd against etcd itself, every minor from 3.2 to 3.7: flags are accepted as rendered, members are read
//! and changed, and what etcd refuses comes back as what it is.

mod care;
mod compared;
mod etcds;
mod flags;
mod members;
mod model;
mod snapshots;
