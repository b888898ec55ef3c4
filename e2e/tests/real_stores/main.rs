//! The stores against servers that others wrote: versitygw for S3, fake-gcs-server, azurite; each over plain HTTP and
//! over TLS with a private authority. And the signature of OSS, for which no server can be had, against the vendor's
//! own client.

mod abs;
mod backups;
mod gcs;
mod oss_signature;
mod s3;
mod servers;
