// SPDX-License-Identifier: Apache-2.0
// What protocols ask the state table for, and what they get.
#pragma once

#include <verbena/protocols/files/exported_file.hpp>
#include <verbena/protocols/files/recovery.hpp>
#include <verbena/protocols/files/stateid.hpp>
#include <verbena/protocols/files/types.hpp>
#include <verbena/protocols/storage/file_lease.hpp>
#include <verbena/protocols/storage/local_locks.hpp>
#include <verbena/protocols/storage/open_file.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::files {

/// What the back end has still to be asked, or to have done; empty where no lock of the file system is concerned.
using back_end_locks = std::shared_ptr<storage::local_locks>;

/// What a client is to the state layer: its lease runs; it is over, and the client keeps what nobody else asks
/// for; it is over, and all is taken; an operator took what it had.
enum class client_state : std::uint8_t { active, courtesy, expired, revoked };

/// On what grounds somebody opens.
enum class open_claim : std::uint8_t {
    fresh,
    reclaim,          ///< had it before the server's restart
    under_delegation, ///< has open_request::delegation
};
/// Which delegation an open asks for.
enum class delegation_want : std::uint8_t { none, any, read, write };
/// Why an open brought no delegation.
enum class no_delegation : std::uint8_t {
    not_wanted,
    not_callable, ///< set_callable() was not said
    contention, ///< somebody else has the file open, waits for it, works on it, or had a delegation recalled lately
    resource,     ///< a limit
    unsuited,     ///< not with this access, switched off, in grace, or the client has one
    no_upgrade,   ///< the client has one to read, and wants one to write
    no_downgrade, ///< the client has one to write, and wants one to read
};

/// What state_table is asked to open, and by whom.
struct open_request {
    client_id client = nobody; ///< of the state layer; nobody for a caller of version 3
    std::span<const std::byte>
        owner;          ///< good during the call; of begin_open(): until the pending_open is gone
    exported_file file; ///< as the state layer knows it
    /// What the back end has given for it, by which the client reads and writes. The back end outlives the table.
    std::shared_ptr<const storage::open_file> opened;
    share access = share::read;           ///< not none
    share deny = share::none;             ///< what others are denied meanwhile
    open_claim claim = open_claim::fresh; ///< on what grounds
    bool promised = false; ///< may_open() has just said yes to it: no limit stands against it any more
    delegation_want want = delegation_want::any; ///< with reclaim: what it had
    stateid delegation;                          ///< with under_delegation
    bool gives_back = false;                     ///< with reclaim: what it had is recalled at once
    bool leased =
        false; ///< others than clients may change the file: it brings a read delegation at most, and that by reserve_delegation() alone
    bool truncates = false; ///< the file is cut, whatever the access
    std::optional<std::uint64_t>
        change; ///< the file's change attribute as the client sees it, if that is known: then the holder of a write delegation may be asked
    bool hears_of_locks =
        false; ///< its client relies on state_handler::lock_available() for locks by this open
};
/// A delegation that came with an open.
struct granted_delegation {
    stateid id;                                   ///< by which it is returned
    delegation_type type = delegation_type::read; ///< to read, or to write as well
    bool recalled =
        false; ///< it is recalled at once: one that was reclaimed and that we don't want to be out
};
/// What an open gave.
struct opened {
    stateid id;                                    ///< by which the file is read, written, locked and closed
    std::optional<granted_delegation> delegation;  ///< where one was given
    no_delegation why = no_delegation::not_wanted; ///< where there is none
};

/// What state_table is asked to lock, and for whom.
struct lock_request {
    client_id client = nobody;        ///< whose lock it is to be
    exported_file file;               ///< that the lock is of
    bool new_owner = false;           ///< `id` is an open, and `owner` says whose lock it is to be
    stateid id;                       ///< else of the owner's earlier locks by the same open
    std::span<const std::byte> owner; ///< good during the call
    byte_range bytes;                 ///< both ends included
    lock_type type = lock_type::read; ///< to read, or to write
    bool wait =
        false; ///< where it is denied: hear of it when it may be asked for again, if its open hears of locks
    bool reclaim = false; ///< it had the lock before the server's restart
};
/// A host's lock, by its owner alone: state_table::add_host().
struct owner_lock {
    client_id client = nobody;        ///< of state_table::add_host()
    exported_file file;               ///< of which file
    std::span<const std::byte> owner; ///< good during the call
    byte_range bytes;                 ///< both ends included
    lock_type type = lock_type::read; ///< to read, or to write
    bool wait = false;                ///< where it is denied: hear of it when it may be asked for again
    bool reclaim = false;             ///< it had the lock before the server's restart
};
/// What a lock is denied for.
struct lock_holder {
    byte_range bytes;                 ///< of them, both ends included
    lock_type type = lock_type::read; ///< how they are locked
    client_id client = nobody;        ///< nobody: a process of this host
    std::string owner;                ///< as the client calls it
};

/// Whose a stateid is.
struct state_holder {
    client_id client = nobody; ///< whose it is
    bool has_owner = false;    ///< false: a delegation
    bool locks = false;        ///< the owner is one of locks
    std::string owner;         ///< its name
    exported_file file;        ///< empty of a delegation that was revoked
};

/// What check_io() found out about a stateid.
struct io_grant {
    /// By which it is done; nullptr if it is by none.
    std::shared_ptr<const storage::open_file> opened;
    /// Whether the client keeps others from writing: it has bytes of that file locked, or an open that denies writing, whatever the
    /// stateid. A delegation does not count: docs/internals/nfs4.md, "Data that are sent from the file", tells why.
    bool keeps_writers_out = false;
    client_id client = nobody; ///< where the call named none, and the stateid tells
};

} // namespace verbena::files

#pragma GCC visibility pop
