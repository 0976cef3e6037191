//! Two pagers as examples of how short one is: each is a structure and two functions.
//!
//! | file | does |
//! |---|---|
//! | `zstd_file` | the pager of a read-only zstd-compressed file |
//! | `seekable` | the format of such a file, read and written |
//! | `chunk_store` | the pager of chunks in a local directory or in S3 |
//! | `serving` | serves one host after another |

pub mod chunk_store;
pub mod seekable;
pub mod serving;
pub mod zstd_file;

pub use chunk_store::ChunkStore;
pub use zstd_file::ZstdFile;
