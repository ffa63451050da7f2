// SPDX-License-Identifier: Apache-2.0
// Callbacks: what a server calls its clients for (8881 20, 7531 for minor version 0, 7862 16). In both directions.
//
// Over a session the first operation is CB_SEQUENCE. A callback's minor version is that of the client's mount. Linux serves
// CB_GETATTR, CB_RECALL, CB_LAYOUTRECALL, CB_NOTIFY_DEVICEID, CB_RECALL_ANY, CB_RECALL_SLOT, CB_SEQUENCE, CB_NOTIFY_LOCK and in 4.2
// CB_OFFLOAD; it takes two operations at most, keeps no replies (cachethis is false), and drops calls that are signed with AUTH_NONE.
#pragma once

#include <verbena/protocols/nfs/wire/v4/compound.hpp>

#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// The program's number is the client's choice (CREATE_SESSION, SETCLIENTID). Its version is 1, as all implementations have it and
/// the XDR says; the 4 in 8881 18.36.3 is a misprint.
inline constexpr std::uint32_t callback_version = 1;
/// The procedures of the callback program (RFC 8881 20).
enum class callback_procedure : std::uint32_t { cb_null = 0, cb_compound = 1 };

/// The operations of CB_COMPOUND by number.
enum class nfs_cb_opnum4 : std::uint32_t {
    getattr = 3,
    recall = 4, ///< the last of minor version 0
    layoutrecall = 5,
    notify = 6,
    push_deleg = 7,
    recall_any = 8,
    recallable_obj_avail = 9,
    recall_slot = 10,
    sequence = 11,
    wants_cancelled = 12,
    notify_lock = 13,
    notify_deviceid = 14, ///< the last of minor version 1
    offload = 15,
    illegal = 10044,
};

/// "CB_RECALL" and so on; "CB_ILLEGAL" for what is no callback of any minor version.
const char* to_string(nfs_cb_opnum4 value) noexcept;

/// Whether it is an operation in that minor version.
constexpr bool is_operation(nfs_cb_opnum4 value, std::uint32_t minor) noexcept
{
    const nfs_cb_opnum4 last = minor == 0   ? nfs_cb_opnum4::recall
                               : minor == 1 ? nfs_cb_opnum4::notify_deviceid
                                            : nfs_cb_opnum4::offload;
    return value >= nfs_cb_opnum4::getattr && value <= last;
}

/// Of a file with a write delegation: change and size alone.
struct CB_GETATTR4args {
    static constexpr nfs_cb_opnum4 opcode = nfs_cb_opnum4::getattr;
    nfs_fh4 fh;
    bitmap4 attr_request;
};
/// CB_GETATTR's results (RFC 8881 20.1.2).
struct CB_GETATTR4res {
    static constexpr nfs_cb_opnum4 opcode = nfs_cb_opnum4::getattr;
    nfsstat4 status = nfsstat4::ok;
    fattr4 obj_attributes;
};

/// CB_RECALL's arguments (RFC 8881 20.2.1).
struct CB_RECALL4args {
    static constexpr nfs_cb_opnum4 opcode = nfs_cb_opnum4::recall;
    stateid4 stateid;
    bool truncate = false;
    nfs_fh4 fh;
};
/// CB_RECALL's results (RFC 8881 20.2.2).
using CB_RECALL4res = status_alone<nfs_cb_opnum4::recall>;

/// Which layouts are recalled (RFC 8881 20.3.1).
struct layoutrecall4 {
    layoutrecall_type4 recalltype = layoutrecall_type4::all;
    nfs_fh4 fh; ///< this and the next three if file
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    stateid4 stateid;
    fsid4 fsid; ///< if fsid
};
/// CB_LAYOUTRECALL's arguments (RFC 8881 20.3.1).
struct CB_LAYOUTRECALL4args {
    static constexpr nfs_cb_opnum4 opcode = nfs_cb_opnum4::layoutrecall;
    layouttype4 type{};
    layoutiomode4 iomode = layoutiomode4::any;
    bool changed = false;
    layoutrecall4 recall;
};
/// CB_LAYOUTRECALL's results (RFC 8881 20.3.2).
using CB_LAYOUTRECALL4res = status_alone<nfs_cb_opnum4::layoutrecall>;

/// `mask` has bits of notify_type4 or notify_deviceid_type4; what they say stays bytes.
struct notify4 {
    bitmap4 mask;
    bytes_view<max_notification_body> vals;
};
/// CB_NOTIFY's arguments (RFC 8881 20.4.1).
struct CB_NOTIFY4args {
    static constexpr nfs_cb_opnum4 opcode = nfs_cb_opnum4::notify;
    stateid4 stateid;
    nfs_fh4 fh;
    array_view<notify4, max_notifications> changes;
};
/// CB_NOTIFY's results (RFC 8881 20.4.2).
using CB_NOTIFY4res = status_alone<nfs_cb_opnum4::notify>;

/// CB_PUSH_DELEG's arguments (RFC 8881 20.5.1).
struct CB_PUSH_DELEG4args {
    static constexpr nfs_cb_opnum4 opcode = nfs_cb_opnum4::push_deleg;
    nfs_fh4 fh;
    open_delegation4 delegation;
};
/// CB_PUSH_DELEG's results (RFC 8881 20.5.2).
using CB_PUSH_DELEG4res = status_alone<nfs_cb_opnum4::push_deleg>;

/// Bits of CB_RECALL_ANY's mask.
enum class rca4_type : std::uint32_t {
    rdata_dlg = 0,
    wdata_dlg = 1,
    dir_dlg = 2,
    file_layout = 3,
    blk_layout = 4,
    obj_layout_min = 8,
    obj_layout_max = 9,
    other_layout_min = 12,
    other_layout_max = 15,
    ff_layout_read = 16, ///< 8435
    ff_layout_rw = 17,
};
/// CB_RECALL_ANY's arguments (RFC 8881 20.6.1).
struct CB_RECALL_ANY4args {
    static constexpr nfs_cb_opnum4 opcode = nfs_cb_opnum4::recall_any;
    std::uint32_t objects_to_keep = 0;
    bitmap4 type_mask;
};
/// CB_RECALL_ANY's results (RFC 8881 20.6.2).
using CB_RECALL_ANY4res = status_alone<nfs_cb_opnum4::recall_any>;

/// CB_RECALLABLE_OBJ_AVAIL's arguments (RFC 8881 20.7.1).
struct CB_RECALLABLE_OBJ_AVAIL4args {
    static constexpr nfs_cb_opnum4 opcode = nfs_cb_opnum4::recallable_obj_avail;
    std::uint32_t objects_to_keep = 0;
    bitmap4 type_mask;
};
/// CB_RECALLABLE_OBJ_AVAIL's results (RFC 8881 20.7.2).
using CB_RECALLABLE_OBJ_AVAIL4res = status_alone<nfs_cb_opnum4::recallable_obj_avail>;

/// CB_RECALL_SLOT's arguments (RFC 8881 20.8.1).
struct CB_RECALL_SLOT4args {
    static constexpr nfs_cb_opnum4 opcode = nfs_cb_opnum4::recall_slot;
    std::uint32_t target_highest_slotid = 0;
};
/// CB_RECALL_SLOT's results (RFC 8881 20.8.2).
using CB_RECALL_SLOT4res = status_alone<nfs_cb_opnum4::recall_slot>;

/// A call of the client's that a callback refers to (RFC 8881 20.9.1).
struct referring_call4 {
    std::uint32_t sequenceid = 0;
    std::uint32_t slotid = 0;
};
/// Those of one session.
struct referring_call_list4 {
    sessionid4 sessionid{};
    array_view<referring_call4, max_referring_calls> referring_calls;
};
/// CB_SEQUENCE's arguments (RFC 8881 20.9.1).
struct CB_SEQUENCE4args {
    static constexpr nfs_cb_opnum4 opcode = nfs_cb_opnum4::sequence;
    sessionid4 sessionid{};
    std::uint32_t sequenceid = 0;
    std::uint32_t slotid = 0;
    std::uint32_t highest_slotid = 0;
    bool cachethis = false;
    array_view<referring_call_list4, max_referring_sessions> referring_call_lists;
};
/// CB_SEQUENCE's results (RFC 8881 20.9.2).
struct CB_SEQUENCE4res {
    static constexpr nfs_cb_opnum4 opcode = nfs_cb_opnum4::sequence;
    nfsstat4 status = nfsstat4::ok;
    sessionid4 sessionid{};
    std::uint32_t sequenceid = 0;
    std::uint32_t slotid = 0;
    std::uint32_t highest_slotid = 0;
    std::uint32_t target_highest_slotid = 0;
};

/// CB_WANTS_CANCELLED's arguments (RFC 8881 20.10.1).
struct CB_WANTS_CANCELLED4args {
    static constexpr nfs_cb_opnum4 opcode = nfs_cb_opnum4::wants_cancelled;
    bool contended_wants_cancelled = false;
    bool resourced_wants_cancelled = false;
};
/// CB_WANTS_CANCELLED's results (RFC 8881 20.10.2).
using CB_WANTS_CANCELLED4res = status_alone<nfs_cb_opnum4::wants_cancelled>;

/// CB_NOTIFY_LOCK's arguments (RFC 8881 20.11.1).
struct CB_NOTIFY_LOCK4args {
    static constexpr nfs_cb_opnum4 opcode = nfs_cb_opnum4::notify_lock;
    nfs_fh4 fh;
    state_owner4 lock_owner;
};
/// CB_NOTIFY_LOCK's results (RFC 8881 20.11.2).
using CB_NOTIFY_LOCK4res = status_alone<nfs_cb_opnum4::notify_lock>;

/// notify4::mask: bit 1 tells of changed devices, bit 2 of deleted ones.
struct CB_NOTIFY_DEVICEID4args {
    static constexpr nfs_cb_opnum4 opcode = nfs_cb_opnum4::notify_deviceid;
    array_view<notify4, max_notifications> changes;
};
/// CB_NOTIFY_DEVICEID's results (RFC 8881 20.12.2).
using CB_NOTIFY_DEVICEID4res = status_alone<nfs_cb_opnum4::notify_deviceid>;

/// How a copy ended.
struct offload_info4 {
    nfsstat4 status = nfsstat4::ok;
    write_response4 response;       // if ok
    std::uint64_t bytes_copied = 0; ///< unless ok
};
/// CB_OFFLOAD's arguments (RFC 7862 16.1.1).
struct CB_OFFLOAD4args {
    static constexpr nfs_cb_opnum4 opcode = nfs_cb_opnum4::offload;
    nfs_fh4 fh;
    stateid4 stateid;
    offload_info4 info;
};
/// CB_OFFLOAD's results (RFC 7862 16.1.2).
using CB_OFFLOAD4res = status_alone<nfs_cb_opnum4::offload>;

/// @name Unions
/// What codec<> of these types calls, as it knows structs alone: the arm that the discriminant chooses.
/// @{
void encode_union(xdr::encoder& out, const layoutrecall4& value) noexcept;
void decode_union(xdr::decoder& in, layoutrecall4& value) noexcept;
void encode_union(xdr::encoder& out, const offload_info4& value) noexcept;
void decode_union(xdr::decoder& in, offload_info4& value) noexcept;
/// @}

/// The arguments of all callbacks, in the order of their numbers.
using all_callback_arguments =
    operation_list<CB_GETATTR4args, CB_RECALL4args, CB_LAYOUTRECALL4args, CB_NOTIFY4args, CB_PUSH_DELEG4args,
                   CB_RECALL_ANY4args, CB_RECALLABLE_OBJ_AVAIL4args, CB_RECALL_SLOT4args, CB_SEQUENCE4args,
                   CB_WANTS_CANCELLED4args, CB_NOTIFY_LOCK4args, CB_NOTIFY_DEVICEID4args, CB_OFFLOAD4args>;
/// Their results, in the same order.
using all_callback_results =
    operation_list<CB_GETATTR4res, CB_RECALL4res, CB_LAYOUTRECALL4res, CB_NOTIFY4res, CB_PUSH_DELEG4res,
                   CB_RECALL_ANY4res, CB_RECALLABLE_OBJ_AVAIL4res, CB_RECALL_SLOT4res, CB_SEQUENCE4res,
                   CB_WANTS_CANCELLED4res, CB_NOTIFY_LOCK4res, CB_NOTIFY_DEVICEID4res, CB_OFFLOAD4res>;

/// What stands before a callback's operations.
struct callback_head {
    text_view<max_tag> tag;
    std::uint32_t minorversion = 0;
    std::uint32_t callback_ident = 0; ///< SETCLIENTID's in minor version 0; ignored in the others
    std::uint32_t operations = 0;
};

/// The operations of CB_COMPOUND.
struct callback_operations {
    /// As those of compound_operations.
    using opcode = nfs_cb_opnum4;
    /// Of all callbacks.
    using arguments = all_callback_arguments;
    /// Of all callbacks.
    using results = all_callback_results;
    /// What stands before them.
    using head = callback_head;
};

} // namespace verbena::nfs::v4

namespace verbena::xdr {

template<>
struct codec<nfs::v4::layoutrecall4>
    : nfs::v4::detail::union_codec<nfs::v4::layoutrecall4, 4,
                                   4 + codec<nfs::v4::nfs_fh4>::max_size + 16 + 16> {};
template<>
struct codec<nfs::v4::offload_info4>
    : nfs::v4::detail::union_codec<nfs::v4::offload_info4, 12,
                                   4 + codec<nfs::v4::write_response4>::max_size> {};

} // namespace verbena::xdr

namespace verbena::nfs::v4 {

/// What a client reads of CB_COMPOUND.
using callback_arguments = basic_arguments<callback_operations>;
/// What a client answers.
using callback_results = basic_results<callback_operations>;
/// What a server sends.
using callback_request = basic_request<callback_operations>;
/// What a server reads of the answer.
using callback_reply = basic_reply<callback_operations>;

extern template class basic_arguments<callback_operations>;
extern template class basic_results<callback_operations>;
extern template class basic_request<callback_operations>;
extern template class basic_reply<callback_operations>;

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
