// SPDX-License-Identifier: Apache-2.0
// Clients and sessions of minor versions 1 and 2 (8881 18.33 to 18.37, 18.46 to 18.51).
#pragma once

#include <verbena/protocols/nfs/wire/v4/bitmap.hpp>
#include <verbena/protocols/nfs/wire/v4/operation.hpp>

#include <optional>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// RFC 5531 appendix A.
struct authsys_parms {
    std::uint32_t stamp = 0;
    text_view<255> machinename;
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
    xdr::list<std::uint32_t, 16> gids;
};

/// How a server may sign its callbacks. Flavours are secinfo4's; another one does not decode.
struct callback_sec_parms4 {
    std::uint32_t cb_secflavor = 0;
    authsys_parms sys_cred;                          // if auth_sys
    rpc_gss_svc_t gss_service = rpc_gss_svc_t::none; ///< from here on if rpcsec_gss
    bytes_view<max_gss_handle> handle_from_server;
    bytes_view<max_gss_handle> handle_from_client;
};

/// BACKCHANNEL_CTL's arguments (RFC 8881 18.33.1).
struct BACKCHANNEL_CTL4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::backchannel_ctl;
    std::uint32_t cb_program = 0;
    array_view<callback_sec_parms4, max_security_flavours> sec_parms;
};
/// BACKCHANNEL_CTL's results (RFC 8881 18.33.2).
using BACKCHANNEL_CTL4res = status_alone<nfs_opnum4::backchannel_ctl>;

/// BIND_CONN_TO_SESSION's arguments (RFC 8881 18.34.1).
struct BIND_CONN_TO_SESSION4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::bind_conn_to_session;
    sessionid4 sessid{};
    channel_dir_from_client4 dir = channel_dir_from_client4::fore;
    bool use_conn_in_rdma_mode = false;
};
/// BIND_CONN_TO_SESSION's results (RFC 8881 18.34.2).
struct BIND_CONN_TO_SESSION4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::bind_conn_to_session;
    nfsstat4 status = nfsstat4::ok;
    sessionid4 sessid{};
    channel_dir_from_server4 dir = channel_dir_from_server4::fore;
    bool use_conn_in_rdma_mode = false;
};

/// Sets of operation numbers.
struct state_protect_ops4 {
    bitmap4 must_enforce;
    bitmap4 must_allow;
};

/// What a client asks for.
struct state_protect4_a {
    state_protect_how4 how = state_protect_how4::none;
    state_protect_ops4 ops;                              // unless none
    array_view<bytes_view<max_oid>, max_oids> hash_algs; ///< from here on if ssv
    array_view<bytes_view<max_oid>, max_oids> encr_algs;
    std::uint32_t window = 0;
    std::uint32_t num_gss_handles = 0;
};

/// What made the client, or the server: for people (RFC 8881 3.3).
struct nfs_impl_id4 {
    text_view<max_opaque, max_text> domain;
    text_view<max_opaque, max_text> name;
    nfstime4 date;
};

/// What a client calls itself, and since when it runs (RFC 8881 2.4).
struct client_owner4 {
    verifier4 verifier{};
    bytes_view<max_opaque> ownerid;
};

/// EXCHANGE_ID's arguments (RFC 8881 18.35.1).
struct EXCHANGE_ID4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::exchange_id;
    client_owner4 clientowner;
    std::uint32_t flags = 0; ///< bits of exchgid4
    state_protect4_a state_protect;
    std::optional<nfs_impl_id4> client_impl_id; ///< two of them don't decode
};

/// What a server grants.
struct state_protect4_r {
    state_protect_how4 how = state_protect_how4::none;
    state_protect_ops4 ops;     // unless none
    std::uint32_t hash_alg = 0; ///< from here on if ssv
    std::uint32_t encr_alg = 0;
    std::uint32_t ssv_len = 0;
    std::uint32_t window = 0;
    array_view<bytes_view<max_gss_handle>, max_ssv_handles> handles;
};

/// Which server it is: two addresses with one major_id are one (RFC 8881 2.5).
struct server_owner4 {
    std::uint64_t minor_id = 0;
    bytes_view<max_opaque> major_id;
};

/// EXCHANGE_ID's results (RFC 8881 18.35.2).
struct EXCHANGE_ID4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::exchange_id;
    nfsstat4 status = nfsstat4::ok;
    clientid4 clientid = 0;
    std::uint32_t sequenceid = 0; ///< of the next CREATE_SESSION
    std::uint32_t flags = 0;
    state_protect4_r state_protect;
    server_owner4 server_owner;
    bytes_view<max_opaque> server_scope;
    std::optional<nfs_impl_id4> server_impl_id;
};

/// What calls of a channel may be (RFC 8881 18.36.1).
struct channel_attrs4 {
    std::uint32_t headerpadsize = 0;
    std::uint32_t maxrequestsize = 0; ///< bytes with the RPC header, as the next two
    std::uint32_t maxresponsesize = 0;
    std::uint32_t maxresponsesize_cached = 0;
    std::uint32_t maxoperations = 0;
    std::uint32_t maxrequests = 0;         // slots
    std::optional<std::uint32_t> rdma_ird; ///< two of them don't decode

    friend bool operator==(const channel_attrs4&, const channel_attrs4&) = default;
};

/// CREATE_SESSION's arguments (RFC 8881 18.36.1).
struct CREATE_SESSION4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::create_session;
    clientid4 clientid = 0;
    std::uint32_t sequence = 0;
    std::uint32_t flags = 0; ///< bits of create_session4
    channel_attrs4 fore_chan_attrs;
    channel_attrs4 back_chan_attrs;
    std::uint32_t cb_program = 0;
    array_view<callback_sec_parms4, max_security_flavours> sec_parms;
};
/// CREATE_SESSION's results (RFC 8881 18.36.2).
struct CREATE_SESSION4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::create_session;
    nfsstat4 status = nfsstat4::ok;
    sessionid4 sessionid{};
    std::uint32_t sequence = 0;
    std::uint32_t flags = 0;
    channel_attrs4 fore_chan_attrs;
    channel_attrs4 back_chan_attrs;
};

/// DESTROY_SESSION's arguments (RFC 8881 18.37.1).
struct DESTROY_SESSION4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::destroy_session;
    sessionid4 sessionid{};
};
/// DESTROY_SESSION's results (RFC 8881 18.37.2).
using DESTROY_SESSION4res = status_alone<nfs_opnum4::destroy_session>;

/// SEQUENCE's arguments (RFC 8881 18.46.1).
struct SEQUENCE4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::sequence;
    sessionid4 sessionid{};
    std::uint32_t sequenceid = 0;
    std::uint32_t slotid = 0;
    std::uint32_t highest_slotid = 0;
    bool cachethis = false;
};
/// SEQUENCE's results (RFC 8881 18.46.2).
struct SEQUENCE4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::sequence;
    nfsstat4 status = nfsstat4::ok;
    sessionid4 sessionid{};
    std::uint32_t sequenceid = 0;
    std::uint32_t slotid = 0;
    std::uint32_t highest_slotid = 0;
    std::uint32_t target_highest_slotid = 0;
    std::uint32_t status_flags = 0; ///< bits of seq4_status
};

/// SET_SSV's arguments (RFC 8881 18.47.1).
struct SET_SSV4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::set_ssv;
    bytes_view<max_ssv> ssv;
    bytes_view<max_ssv> digest;
};
/// SET_SSV's results (RFC 8881 18.47.2).
struct SET_SSV4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::set_ssv;
    nfsstat4 status = nfsstat4::ok;
    bytes_view<max_ssv> digest;
};

/// DESTROY_CLIENTID's arguments (RFC 8881 18.50.1).
struct DESTROY_CLIENTID4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::destroy_clientid;
    clientid4 clientid = 0;
};
/// DESTROY_CLIENTID's results (RFC 8881 18.50.2).
using DESTROY_CLIENTID4res = status_alone<nfs_opnum4::destroy_clientid>;

/// RECLAIM_COMPLETE's arguments (RFC 8881 18.51.1).
struct RECLAIM_COMPLETE4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::reclaim_complete;
    bool one_fs = false; ///< the current handle's alone
};
/// RECLAIM_COMPLETE's results (RFC 8881 18.51.2).
using RECLAIM_COMPLETE4res = status_alone<nfs_opnum4::reclaim_complete>;

/// @name Unions
/// What codec<> of these types calls, as it knows structs alone: the arm that the discriminant chooses.
/// @{
void encode_union(xdr::encoder& out, const callback_sec_parms4& value) noexcept;
void decode_union(xdr::decoder& in, callback_sec_parms4& value) noexcept;
void encode_union(xdr::encoder& out, const state_protect4_a& value) noexcept;
void decode_union(xdr::decoder& in, state_protect4_a& value) noexcept;
void encode_union(xdr::encoder& out, const state_protect4_r& value) noexcept;
void decode_union(xdr::decoder& in, state_protect4_r& value) noexcept;
/// @}

} // namespace verbena::nfs::v4

namespace verbena::xdr {

template<>
struct codec<nfs::v4::callback_sec_parms4>
    : nfs::v4::detail::union_codec<nfs::v4::callback_sec_parms4, 4,
                                   4 + 4 + 2 * opaque_size(nfs::v4::max_gss_handle)> {};
template<>
struct codec<nfs::v4::state_protect4_a>
    : nfs::v4::detail::union_codec<nfs::v4::state_protect4_a, 4,
                                   4 + codec<nfs::v4::state_protect_ops4>::max_size +
                                       2 * codec<decltype(nfs::v4::state_protect4_a::hash_algs)>::max_size +
                                       8> {};
template<>
struct codec<nfs::v4::state_protect4_r>
    : nfs::v4::detail::union_codec<nfs::v4::state_protect4_r, 4,
                                   4 + codec<nfs::v4::state_protect_ops4>::max_size + 16 +
                                       codec<decltype(nfs::v4::state_protect4_r::handles)>::max_size> {};

} // namespace verbena::xdr

#pragma GCC visibility pop
