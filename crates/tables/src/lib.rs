//! Segments whose page tables all processes that attach them share (Ko & Yoo, "Shared Page Table"): the paper's four
//! operations. A segment is *made* with all its pages, its tables are *held* by somebody who stays, processes *attach* it by
//! pointing their directories at the tables, and *detach* it. `docs/PAGE-TABLES.md` has the drawing.
//!
//! There are two engines ([`Engine`]). One stands on what any Linux kernel does with huge pages: a table that maps a whole
//! gigabyte of a shared hugetlb file is used by every process that maps the same gigabyte in the same way. The other is a
//! kernel module, which shares tables of 4 KiB pages.

mod engine;
mod hugetlb;
mod map;
mod module;
mod pool;
mod proof;
mod span;

pub use engine::{Engine, Hugetlb, Made};
pub use hugetlb::{HUGE, Segment, make};
pub use map::{Attachment, attach, attach_own};
pub use module::{DEVICE, Module, SegmentInfo};
pub use pool::Pool;
pub use proof::{Tables, tables_of_page};
pub use span::{GIGABYTE, check_address, spanned};
