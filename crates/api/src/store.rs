//! Store settings that backups and restores share.
//!
//! The Secrets have the formats of the older operator. Where the platform provides an identity, no Secret is needed.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Type of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StorageType {
    /// Amazon S3 and S3-compatible stores.
    #[default]
    S3,
    /// Azure Blob Storage.
    ABS,
    /// Google Cloud Storage.
    GCS,
    /// Alibaba Cloud Object Storage Service.
    OSS,
    /// A directory on a PersistentVolumeClaim.
    Local,
}

impl StorageType {
    /// All types, in the order of the documentation.
    pub const ALL: [Self; 5] = [Self::S3, Self::ABS, Self::GCS, Self::OSS, Self::Local];

    /// The value as users write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::S3 => "S3",
            Self::ABS => "ABS",
            Self::GCS => "GCS",
            Self::OSS => "OSS",
            Self::Local => "Local",
        }
    }

    /// The spec field with the settings of this store.
    pub fn block(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::ABS => "abs",
            Self::GCS => "gcs",
            Self::OSS => "oss",
            Self::Local => "local",
        }
    }
}

/// Settings of Amazon S3 or an S3-compatible store. The path is required: validation refuses an object without it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.path) || (!self.path.contains('://') && !self.path.endsWith('.manifest.json') && !self.path.endsWith('.claim.json'))").message("s3.path must be BUCKET/KEY without a scheme, and must not end in .manifest.json or .claim.json, as files beside backups do; for example: path: my-bucket/etcd/orders").field_path(".path"),
    validation = Rule::new("has(self.path) && self.path.matches('^[^/]+/.+$')").message("s3.path must be BUCKET/KEY, and s3.awsSecret must name the Secret with the credentials where the platform gives no identity; for example: s3: {path: my-bucket/etcd/orders, awsSecret: aws}").field_path(".path"),
    validation = Rule::new("!has(self.awsSecret) || self.awsSecret != ''").message("s3.awsSecret is empty: name the Secret with the credentials, or leave the field out where the platform gives identity; for example: awsSecret: aws").field_path(".awsSecret"),
)]
pub struct S3Store {
    /// BUCKET/KEY of the object. A periodic backup appends revision and time to the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
    /// Secret with the keys credentials and config, in the format of the AWS CLI. Omit it where the platform provides an identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub aws_secret: Option<String>,
    /// URL of an S3-compatible store, with scheme. Empty means Amazon S3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new("self == '' || self.matches('^https?://[^/ ]+')").message("s3.endpoint must be an address with scheme; for example: endpoint: https://minio.example.com:9000"))]
    pub endpoint: Option<String>,
    /// Whether requests carry the bucket in the path instead of the host name. Most S3-compatible stores need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_path_style: Option<bool>,
    /// Region. It takes precedence over the config in the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub region: Option<String>,
    /// Server-side encryption by the store: AES256, or aws:kms with the store's default key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_side_encryption: Option<ServerSideEncryption>,
    /// Storage class of the objects, for example STANDARD_IA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub storage_class: Option<String>,
    /// Secret with the key ca.crt: the certificate authority of the endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub ca_secret: Option<String>,
}

/// Server-side encryption by the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServerSideEncryption {
    /// Encryption with keys that the store manages.
    AES256,
    /// Encryption with the default key of the key management service.
    #[serde(rename = "aws:kms")]
    Kms,
}

/// Settings of Azure Blob Storage. The path is required: validation refuses an object without it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.path) || (!self.path.contains('://') && !self.path.endsWith('.manifest.json') && !self.path.endsWith('.claim.json'))").message("abs.path must be CONTAINER/KEY without a scheme, and must not end in .manifest.json or .claim.json, as files beside backups do; for example: path: backups/etcd/orders").field_path(".path"),
    validation = Rule::new("has(self.path) && self.path.matches('^[^/]+/.+$')").message("abs.path must be CONTAINER/KEY, and abs.absSecret must name the Secret with the credentials where the platform gives no identity; for example: abs: {path: backups/etcd/orders, absSecret: azure}").field_path(".path"),
    validation = Rule::new("!has(self.absSecret) || self.absSecret != ''").message("abs.absSecret is empty: name the Secret with the credentials, or leave the field out where the platform gives identity; for example: absSecret: azure").field_path(".absSecret"),
)]
pub struct AbsStore {
    /// CONTAINER/KEY of the object. A periodic backup appends revision and time to the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
    /// Secret with the keys storage-account, storage-key and, outside the public cloud, cloud. Omit it where the platform provides an identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub abs_secret: Option<String>,
    /// URL of the storage account, if it is not the default of its Azure cloud, for example a private link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new("self == '' || self.matches('^https?://[^/ ]+')").message("abs.endpoint must be an address with scheme; for example: endpoint: https://backups.blob.example.com"))]
    pub endpoint: Option<String>,
    /// Secret with the key ca.crt: the certificate authority of the endpoint, if it is a private one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub ca_secret: Option<String>,
}

/// Settings of Google Cloud Storage. The path is required: validation refuses an object without it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.path) || (!self.path.contains('://') && !self.path.endsWith('.manifest.json') && !self.path.endsWith('.claim.json'))").message("gcs.path must be BUCKET/KEY without a scheme, and must not end in .manifest.json or .claim.json, as files beside backups do; for example: path: my-bucket/etcd/orders").field_path(".path"),
    validation = Rule::new("has(self.path) && self.path.matches('^[^/]+/.+$')").message("gcs.path must be BUCKET/KEY, and gcs.gcpSecret must name the Secret with the credentials where the platform gives no identity; for example: gcs: {path: my-bucket/etcd/orders, gcpSecret: gcp}").field_path(".path"),
)]
pub struct GcsStore {
    /// BUCKET/KEY of the object. A periodic backup appends revision and time to the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
    /// Secret with the key credentials.json or access-token. Omit it, or leave it empty, to use the platform's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub gcp_secret: Option<String>,
    /// URL of Cloud Storage, if it is not storage.googleapis.com, for example with Private Service Connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new("self == '' || self.matches('^https?://[^/ ]+')").message("gcs.endpoint must be an address with scheme; for example: endpoint: https://storage-backups.p.googleapis.com"))]
    pub endpoint: Option<String>,
    /// Secret with the key ca.crt: the certificate authority of the endpoint, if it is a private one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub ca_secret: Option<String>,
}

/// Settings of Alibaba Cloud Object Storage Service. The path is required: validation refuses an object without it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.path) || (!self.path.contains('://') && !self.path.endsWith('.manifest.json') && !self.path.endsWith('.claim.json'))").message("oss.path must be BUCKET/KEY without a scheme, and must not end in .manifest.json or .claim.json, as files beside backups do; for example: path: my-bucket/etcd/orders").field_path(".path"),
    validation = Rule::new("has(self.path) && self.path.matches('^[^/]+/.+$')").message("oss.path must be BUCKET/KEY, and oss.ossSecret must name the Secret with the credentials where the platform gives no identity; for example: oss: {path: my-bucket/etcd/orders, ossSecret: aliyun}").field_path(".path"),
    validation = Rule::new("!has(self.ossSecret) || self.ossSecret != ''").message("oss.ossSecret is empty: name the Secret with the credentials, or leave the field out where the platform gives identity; for example: ossSecret: aliyun").field_path(".ossSecret"),
)]
pub struct OssStore {
    /// BUCKET/KEY of the object. A periodic backup appends revision and time to the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
    /// Secret with the keys accessKeyID and accessKeySecret. Omit it where the platform provides an identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub oss_secret: Option<String>,
    /// Endpoint, with or without scheme: public, internal, or a custom domain. Default: http://oss-cn-hangzhou.aliyuncs.com.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub endpoint: Option<String>,
    /// Region, if the endpoint does not contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub region: Option<String>,
    /// Secret with the key ca.crt: the certificate authority of the endpoint, if it is a private one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub ca_secret: Option<String>,
}

/// Settings of a directory on a PersistentVolumeClaim in the object's namespace.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.persistentVolumeClaim) && self.persistentVolumeClaim != ''").message("local.persistentVolumeClaim must name a PersistentVolumeClaim of this namespace; for example: persistentVolumeClaim: etcd-backups").field_path(".persistentVolumeClaim"),
    validation = Rule::new("!has(self.path) || (!self.path.startsWith('/') && !self.path.contains('..'))").message("local.path must be relative to the volume and must not contain '..'; for example: path: etcd/orders").field_path(".path"),
    validation = Rule::new("!has(self.path) || (!self.path.contains('://') && !self.path.endsWith('.manifest.json') && !self.path.endsWith('.claim.json'))").message("local.path must be without a scheme, and must not end in .manifest.json or .claim.json, as files beside backups do; for example: path: etcd/orders").field_path(".path"),
)]
pub struct LocalStore {
    /// Name of the PersistentVolumeClaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub persistent_volume_claim: Option<String>,
    /// Path of the object below the volume's root. Default: the name of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
}

/// Reference to an EtcdCluster.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRef {
    /// Name of an EtcdCluster in the same namespace.
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self != ''").message("etcdCluster.name must name an EtcdCluster of this namespace; for example: etcdCluster: {name: orders}"))]
    pub name: String,
}
