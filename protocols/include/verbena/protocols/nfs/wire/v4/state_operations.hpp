// SPDX-License-Identifier: Apache-2.0
// Opens, locks, delegations, and minor version 0's clients.
#pragma once

#include <verbena/protocols/nfs/wire/v4/attributes.hpp>
#include <verbena/protocols/nfs/wire/v4/operation.hpp>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// open_owner4 and lock_owner4. Minor versions 1 and 2 ignore the client id.
struct state_owner4 {
    clientid4 clientid = 0;
    bytes_view<max_opaque> owner;
};

/// CLOSE's arguments (RFC 8881 18.2.1).
struct CLOSE4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::close;
    std::uint32_t seqid = 0;
    stateid4 open_stateid;
};
/// CLOSE's results (RFC 8881 18.2.2).
struct CLOSE4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::close;
    nfsstat4 status = nfsstat4::ok;
    stateid4 open_stateid;
};

/// DELEGPURGE's arguments (RFC 8881 18.5.1).
struct DELEGPURGE4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::delegpurge;
    clientid4 clientid = 0;
};
/// DELEGPURGE's results (RFC 8881 18.5.2).
using DELEGPURGE4res = status_alone<nfs_opnum4::delegpurge>;

/// DELEGRETURN's arguments (RFC 8881 18.6.1).
struct DELEGRETURN4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::delegreturn;
    stateid4 deleg_stateid;
};
/// DELEGRETURN's results (RFC 8881 18.6.2).
using DELEGRETURN4res = status_alone<nfs_opnum4::delegreturn>;

/// Who locks: a lock owner that this file has not seen, by its open, or one that has a lock stateid. Seqids are minor version 0's.
struct locker4 {
    bool new_lock_owner = false;
    std::uint32_t open_seqid = 0; ///< if new
    stateid4 open_stateid;        // if new
    std::uint32_t lock_seqid = 0;
    state_owner4 lock_owner; ///< if new
    stateid4 lock_stateid;   // unless new
};

/// LOCK's arguments (RFC 8881 18.10.1).
struct LOCK4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::lock;
    nfs_lock_type4 locktype = nfs_lock_type4::read;
    bool reclaim = false;
    std::uint64_t offset = 0;
    std::uint64_t length = 0; ///< or to_end_of_file
    locker4 locker;
};
/// The lock that is in the way.
struct LOCK4denied {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    nfs_lock_type4 locktype = nfs_lock_type4::read;
    state_owner4 owner;
};
/// LOCK's results (RFC 8881 18.10.2).
struct LOCK4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::lock;
    nfsstat4 status = nfsstat4::ok;
    stateid4 lock_stateid; ///< if ok
    LOCK4denied denied;    // if denied
};

/// LOCKT's arguments (RFC 8881 18.11.1).
struct LOCKT4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::lockt;
    nfs_lock_type4 locktype = nfs_lock_type4::read;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    state_owner4 owner;
};
/// LOCKT's results (RFC 8881 18.11.2).
struct LOCKT4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::lockt;
    nfsstat4 status = nfsstat4::ok;
    LOCK4denied denied; ///< if denied
};

/// LOCKU's arguments (RFC 8881 18.12.1).
struct LOCKU4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::locku;
    nfs_lock_type4 locktype = nfs_lock_type4::read;
    std::uint32_t seqid = 0;
    stateid4 lock_stateid;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
};
/// LOCKU's results (RFC 8881 18.12.2).
struct LOCKU4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::locku;
    nfsstat4 status = nfsstat4::ok;
    stateid4 lock_stateid;
};

/// openflag4 and createhow4. exclusive4_1 is of minor versions 1 and 2.
struct openflag4 {
    opentype4 opentype = opentype4::nocreate;
    createmode4 mode = createmode4::unchecked; ///< from here on if create
    verifier4 verf{};                          // if exclusive or exclusive4_1
    fattr4 attrs;                              // unless exclusive
};

/// On what grounds a file is opened, and which (RFC 8881 18.16.1).
struct open_claim4 {
    open_claim_type4 claim = open_claim_type4::null;
    open_delegation_type4 delegate_type = open_delegation_type4::none; ///< if previous
    stateid4 delegate_stateid;                                         // if delegate_cur or deleg_cur_fh
    component4 file; ///< if null, delegate_cur or delegate_prev
};

/// OPEN's arguments (RFC 8881 18.16.1).
struct OPEN4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::open;
    std::uint32_t seqid = 0;
    std::uint32_t share_access = 0; ///< of share4, with its want bits
    std::uint32_t share_deny = 0;
    state_owner4 owner;
    openflag4 openhow;
    open_claim4 claim;
};

/// How much may be written under a delegation before the server is asked (RFC 8881 18.16.2).
struct nfs_space_limit4 {
    limit_by4 limitby = limit_by4::size;
    std::uint64_t filesize = 0;        // if size
    std::uint32_t num_blocks = 0;      // if blocks
    std::uint32_t bytes_per_block = 0; ///< if blocks
};

/// What an open brings with it. An ACE must be there, and Linux reads it and forgets it.
struct open_delegation4 {
    open_delegation_type4 delegation_type = open_delegation_type4::none;
    stateid4 stateid;                                        // of a delegation
    bool recall = false;                                     // of a delegation: it is to be returned at once
    nfs_space_limit4 space_limit;                            // if write or write_attrs_deleg
    nfsace4 permissions;                                     // of a delegation
    why_no_delegation4 why = why_no_delegation4::not_wanted; ///< if none_ext
    bool will_tell = false; ///< if none_ext: contention (will push one) or resource (will signal)
};

/// OPEN's results (RFC 8881 18.16.2).
struct OPEN4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::open;
    nfsstat4 status = nfsstat4::ok;
    stateid4 stateid;
    change_info4 cinfo;       // of the directory
    std::uint32_t rflags = 0; ///< bits of open4_result
    bitmap4 attrset;
    open_delegation4 delegation;
};

/// OPEN_CONFIRM's arguments (RFC 7530 16.18.1).
struct OPEN_CONFIRM4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::open_confirm;
    stateid4 open_stateid;
    std::uint32_t seqid = 0;
};
/// OPEN_CONFIRM's results (RFC 7530 16.18.2).
struct OPEN_CONFIRM4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::open_confirm;
    nfsstat4 status = nfsstat4::ok;
    stateid4 open_stateid;
};

/// OPEN_DOWNGRADE's arguments (RFC 8881 18.18.1).
struct OPEN_DOWNGRADE4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::open_downgrade;
    stateid4 open_stateid;
    std::uint32_t seqid = 0;
    std::uint32_t share_access = 0;
    std::uint32_t share_deny = 0;
};
/// OPEN_DOWNGRADE's results (RFC 8881 18.18.2).
struct OPEN_DOWNGRADE4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::open_downgrade;
    nfsstat4 status = nfsstat4::ok;
    stateid4 open_stateid;
};

/// RENEW's arguments (RFC 7530 16.28.1).
struct RENEW4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::renew;
    clientid4 clientid = 0;
};
/// RENEW's results (RFC 7530 16.28.2).
using RENEW4res = status_alone<nfs_opnum4::renew>;

/// A universal address (RFC 5665): "tcp", "192.0.2.1.8.1".
struct netaddr4 {
    text_view<max_network_address> netid;
    text_view<max_network_address> addr;
};

/// SETCLIENTID's arguments (RFC 7530 16.33.1).
struct SETCLIENTID4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::setclientid;
    verifier4 verifier{};
    bytes_view<max_opaque> id;
    std::uint32_t cb_program = 0;
    netaddr4 cb_location;
    std::uint32_t callback_ident = 0;
};
/// SETCLIENTID's results (RFC 7530 16.33.2).
struct SETCLIENTID4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::setclientid;
    nfsstat4 status = nfsstat4::ok;
    clientid4 clientid = 0;          // if ok
    verifier4 setclientid_confirm{}; ///< if ok
    netaddr4 client_using;           // if clid_inuse
};

/// SETCLIENTID_CONFIRM's arguments (RFC 7530 16.34.1).
struct SETCLIENTID_CONFIRM4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::setclientid_confirm;
    clientid4 clientid = 0;
    verifier4 setclientid_confirm{};
};
/// SETCLIENTID_CONFIRM's results (RFC 7530 16.34.2).
using SETCLIENTID_CONFIRM4res = status_alone<nfs_opnum4::setclientid_confirm>;

/// RELEASE_LOCKOWNER's arguments (RFC 7530 16.37.1).
struct RELEASE_LOCKOWNER4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::release_lockowner;
    state_owner4 lock_owner;
};
/// RELEASE_LOCKOWNER's results (RFC 7530 16.37.2).
using RELEASE_LOCKOWNER4res = status_alone<nfs_opnum4::release_lockowner>;

/// FREE_STATEID's arguments (RFC 8881 18.38.1).
struct FREE_STATEID4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::free_stateid;
    stateid4 stateid;
};
/// FREE_STATEID's results (RFC 8881 18.38.2).
using FREE_STATEID4res = status_alone<nfs_opnum4::free_stateid>;

/// TEST_STATEID's arguments (RFC 8881 18.48.1).
struct TEST_STATEID4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::test_stateid;
    array_view<stateid4, max_test_stateids> stateids;
};
/// TEST_STATEID's results (RFC 8881 18.48.2).
struct TEST_STATEID4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::test_stateid;
    nfsstat4 status = nfsstat4::ok;
    array_view<nfsstat4, max_test_stateids> status_codes;
};

/// deleg_claim4: fh, deleg_prev_fh or previous; other claims don't decode.
struct WANT_DELEGATION4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::want_delegation;
    std::uint32_t want = 0; ///< want bits of share4
    open_claim_type4 claim = open_claim_type4::fh;
    open_delegation_type4 delegate_type = open_delegation_type4::none; ///< if previous
};
/// WANT_DELEGATION's results (RFC 8881 18.49.2).
struct WANT_DELEGATION4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::want_delegation;
    nfsstat4 status = nfsstat4::ok;
    open_delegation4 delegation;
};

/// GET_DIR_DELEGATION's arguments (RFC 8881 18.39.1).
struct GET_DIR_DELEGATION4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::get_dir_delegation;
    bool signal_deleg_avail = false;
    bitmap4 notification_types;
    nfstime4 child_attr_delay;
    nfstime4 dir_attr_delay;
    bitmap4 child_attributes;
    bitmap4 dir_attributes;
};
/// GET_DIR_DELEGATION's results (RFC 8881 18.39.2).
struct GET_DIR_DELEGATION4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::get_dir_delegation;
    nfsstat4 status = nfsstat4::ok;
    bool unavailable = false;             // GDD4_UNAVAIL; from here on if ok
    bool will_signal_deleg_avail = false; ///< if unavailable
    verifier4 cookieverf{};               // from here on unless unavailable
    stateid4 stateid;
    bitmap4 notification;
    bitmap4 child_attributes;
    bitmap4 dir_attributes;
};

/// @name Unions
/// What codec<> of these types calls, as it knows structs alone: the arm that the discriminant chooses.
/// @{
void encode_union(xdr::encoder& out, const locker4& value) noexcept;
void decode_union(xdr::decoder& in, locker4& value) noexcept;
void encode_union(xdr::encoder& out, const LOCK4res& value) noexcept;
void decode_union(xdr::decoder& in, LOCK4res& value) noexcept;
void encode_union(xdr::encoder& out, const LOCKT4res& value) noexcept;
void decode_union(xdr::decoder& in, LOCKT4res& value) noexcept;
void encode_union(xdr::encoder& out, const openflag4& value) noexcept;
void decode_union(xdr::decoder& in, openflag4& value) noexcept;
void encode_union(xdr::encoder& out, const open_claim4& value) noexcept;
void decode_union(xdr::decoder& in, open_claim4& value) noexcept;
void encode_union(xdr::encoder& out, const nfs_space_limit4& value) noexcept;
void decode_union(xdr::decoder& in, nfs_space_limit4& value) noexcept;
void encode_union(xdr::encoder& out, const open_delegation4& value) noexcept;
void decode_union(xdr::decoder& in, open_delegation4& value) noexcept;
void encode_union(xdr::encoder& out, const SETCLIENTID4res& value) noexcept;
void decode_union(xdr::decoder& in, SETCLIENTID4res& value) noexcept;
void encode_union(xdr::encoder& out, const WANT_DELEGATION4args& value) noexcept;
void decode_union(xdr::decoder& in, WANT_DELEGATION4args& value) noexcept;
void encode_union(xdr::encoder& out, const GET_DIR_DELEGATION4res& value) noexcept;
void decode_union(xdr::decoder& in, GET_DIR_DELEGATION4res& value) noexcept;
/// @}

} // namespace verbena::nfs::v4

namespace verbena::xdr {

template<>
struct codec<nfs::v4::locker4>
    : nfs::v4::detail::union_codec<nfs::v4::locker4, 24,
                                   4 + 4 + 16 + 4 + codec<nfs::v4::state_owner4>::max_size> {};
template<>
struct codec<nfs::v4::LOCK4res>
    : nfs::v4::detail::union_codec<nfs::v4::LOCK4res, 4, 4 + codec<nfs::v4::LOCK4denied>::max_size> {};
template<>
struct codec<nfs::v4::LOCKT4res>
    : nfs::v4::detail::union_codec<nfs::v4::LOCKT4res, 4, 4 + codec<nfs::v4::LOCK4denied>::max_size> {};
template<>
struct codec<nfs::v4::openflag4>
    : nfs::v4::detail::union_codec<nfs::v4::openflag4, 4, 4 + 4 + 8 + codec<nfs::v4::fattr4>::max_size> {};
template<>
struct codec<nfs::v4::open_claim4>
    : nfs::v4::detail::union_codec<nfs::v4::open_claim4, 4, 4 + 16 + codec<nfs::v4::component4>::max_size> {};
template<>
struct codec<nfs::v4::nfs_space_limit4> : nfs::v4::detail::union_codec<nfs::v4::nfs_space_limit4, 12, 12> {};
template<>
struct codec<nfs::v4::open_delegation4>
    : nfs::v4::detail::union_codec<nfs::v4::open_delegation4, 4,
                                   4 + 16 + 4 + 12 + codec<nfs::v4::nfsace4>::max_size> {};
template<>
struct codec<nfs::v4::SETCLIENTID4res>
    : nfs::v4::detail::union_codec<nfs::v4::SETCLIENTID4res, 4, 4 + codec<nfs::v4::netaddr4>::max_size> {};
template<>
struct codec<nfs::v4::WANT_DELEGATION4args>
    : nfs::v4::detail::union_codec<nfs::v4::WANT_DELEGATION4args, 8, 12> {};
template<>
struct codec<nfs::v4::GET_DIR_DELEGATION4res>
    : nfs::v4::detail::union_codec<nfs::v4::GET_DIR_DELEGATION4res, 4,
                                   8 + 8 + 16 + 3 * codec<nfs::v4::bitmap4>::max_size> {};

} // namespace verbena::xdr

#pragma GCC visibility pop
