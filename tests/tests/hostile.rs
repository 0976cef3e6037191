//! Clients that lie, flood, fall silent or are of another version; state of another version; a clock that jumps.

use commonhold::wire_for_tests as _;
