/* commonhold-shm.h - flags of System V segments whose page tables all processes share (Ko & Yoo, "Shared Page Table").
 *
 *     int id = shmget(key, 2UL << 30, IPC_CREAT | 0660 | IPC_SHARE_PAGE_TABLE);
 *     char *memory = shmat(id, NULL, SHM_SHARE_PAGE_TABLE);
 *
 * The program is run by `commonhold run`; otherwise the kernel ignores them, and it gets an ordinary segment. */
#ifndef COMMONHOLD_SHM_H
#define COMMONHOLD_SHM_H

#include <sys/ipc.h>
#include <sys/shm.h>

/* shmget: create a table of pages that all share, of huge pages, which are all taken now. */
#define IPC_SHARE_PAGE_TABLE 0x200000

/* shmat: attach by that table, at an address that begins a gigabyte; EINVAL where there is none. Without it a process attaches
 * the same segment by tables of its own, for protections or referenced and modified bits of its own. */
#define SHM_SHARE_PAGE_TABLE 0x100000

/* The same, by Solaris' name. */
#define SHM_SHARE_MMU SHM_SHARE_PAGE_TABLE

#endif
