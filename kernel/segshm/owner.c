// SPDX-License-Identifier: GPL-2.0
/*
 * How much memory the segments of each user pin, and how many PTE pages they take. A user is
 * entered with his first segment and removed with his last one.
 */
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include "segshm.h"

#define NOT_GIVEN ULLONG_MAX

static unsigned long long user_bytes = NOT_GIVEN;
module_param(user_bytes, ullong, 0644);
MODULE_PARM_DESC(user_bytes, "Bytes that the segments of one user may pin; 0: no limit "
			     "(default: half of the memory)");

static unsigned long long user_tables = NOT_GIVEN;
module_param(user_tables, ullong, 0644);
MODULE_PARM_DESC(user_tables, "PTE pages of 4 KiB that the segments of one user may take; "
			      "0: no limit (default: two for each 2 MiB of half of the memory)");

static LIST_HEAD(owners);
static DEFINE_MUTEX(owners_lock);

/* Sets those limits that were not given to the module. */
void segshm_owner_init(void)
{
	u64 half = (u64)totalram_pages() << (PAGE_SHIFT - 1);

	if (user_bytes == NOT_GIVEN)
		user_bytes = half;
	if (user_tables == NOT_GIVEN)
		user_tables = max_t(u64, 2 * (half / SEGSHM_UNIT), 1);
}

/* Whether more on top of what is used stays within a limit. */
static bool allowed(u64 used, u64 more, u64 limit)
{
	return !limit || (used <= limit && more <= limit - used);
}

static struct segshm_owner *find_owner(kuid_t uid)
{
	struct segshm_owner *owner;

	list_for_each_entry(owner, &owners, node)
		if (uid_eq(owner->uid, uid))
			return owner;
	return NULL;
}

/* The entry of a user, made if there is none. The caller holds the lock. */
static struct segshm_owner *get_owner(kuid_t uid)
{
	struct segshm_owner *owner = find_owner(uid);

	if (!owner) {
		owner = kzalloc(sizeof(*owner), GFP_KERNEL);
		if (!owner)
			return ERR_PTR(-ENOMEM);
		owner->uid = uid;
		list_add(&owner->node, &owners);
	}
	owner->segments++;
	return owner;
}

/* Removes the entry of a user who has no segment any more. The caller holds the lock. */
static void put_owner(struct segshm_owner *owner)
{
	if (--owner->segments)
		return;
	WARN_ON_ONCE(owner->bytes || owner->tables);
	list_del(&owner->node);
	kfree(owner);
}

struct segshm_owner *segshm_owner_charge(kuid_t uid, u64 bytes, u64 tables)
{
	struct segshm_owner *owner;

	mutex_lock(&owners_lock);
	owner = get_owner(uid);
	if (IS_ERR(owner))
		goto out;
	if (allowed(owner->bytes, bytes, READ_ONCE(user_bytes)) &&
	    allowed(owner->tables, tables, READ_ONCE(user_tables))) {
		owner->bytes += bytes;
		owner->tables += tables;
	} else {
		put_owner(owner);
		owner = ERR_PTR(-EDQUOT);
	}
out:
	mutex_unlock(&owners_lock);
	return owner;
}

void segshm_owner_uncharge(struct segshm_owner *owner, u64 bytes, u64 tables)
{
	mutex_lock(&owners_lock);
	owner->bytes -= bytes;
	owner->tables -= tables;
	put_owner(owner);
	mutex_unlock(&owners_lock);
}

int segshm_owner_charge_tables(struct segshm_owner *owner, u64 tables)
{
	int error = -EDQUOT;

	mutex_lock(&owners_lock);
	if (allowed(owner->tables, tables, READ_ONCE(user_tables))) {
		owner->tables += tables;
		error = 0;
	}
	mutex_unlock(&owners_lock);
	return error;
}

void segshm_owner_uncharge_tables(struct segshm_owner *owner, u64 tables)
{
	mutex_lock(&owners_lock);
	owner->tables -= tables;
	mutex_unlock(&owners_lock);
}

void segshm_owner_usage(kuid_t uid, struct segshm_usage *usage)
{
	struct segshm_owner *owner;

	mutex_lock(&owners_lock);
	owner = find_owner(uid);
	usage->bytes = owner ? owner->bytes : 0;
	usage->tables = owner ? owner->tables : 0;
	mutex_unlock(&owners_lock);
	usage->bytes_limit = READ_ONCE(user_bytes);
	usage->tables_limit = READ_ONCE(user_tables);
}
