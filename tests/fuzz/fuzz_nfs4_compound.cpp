// SPDX-License-Identifier: Apache-2.0
// NFS version 4. The first byte says what the rest is; where it is one operation alone, the second byte is its number:
//   0 a COMPOUND's arguments      1 one operation's arguments    2 a COMPOUND's reply     3 one operation's results
//   4 a CB_COMPOUND's arguments   5 one callback's arguments     6 a CB_COMPOUND's reply  7 one callback's results
//   8 attributes, to be read, set and compared                   9 a directory's entries
//  10 a COMPOUND's arguments with an item in a Read chunk: two bytes of position, two of length
//  11 a netid, a byte of 0, and a universal address

#include "../../plugins/posixfs/acl_mapping.hpp"
#include "fuzz.hpp"

#include <verbena/protocols/nfs/server/v4/storage.hpp>
#include <verbena/protocols/nfs/wire/v4/callback.hpp>
#include <verbena/protocols/nfs/wire/v4/compound.hpp>
#include <verbena/protocols/nfs/wire/v4/universal_address.hpp>
#include <verbena/protocols/storage/acl_rules.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

using namespace verbena;
using namespace verbena::nfs::v4;
using fuzz::require;

namespace {

using view = std::span<const std::byte>;

template<class T>
std::vector<std::byte> encoded(const T& value, std::size_t room)
{
    std::vector<std::byte> bytes(room);
    xdr::encoder out(bytes);
    xdr::codec<T>::encode(out, value);
    require(out.ok());
    bytes.resize(out.size());
    return bytes;
}

/// What was read, written and read again is the same, and no longer than it came.
template<class T>
void same_again(const T& first, std::size_t came)
{
    const auto once = encoded(first, came);
    xdr::decoder again(once);
    T second{};
    xdr::codec<T>::decode(again, second);
    // Data in a chunk goes by the transport, so that only the rest was written.
    if (again.ok())
        require(std::ranges::equal(once, encoded(second, once.size())));
}

template<class List, class Opcode>
void one(view bytes)
{
    if (bytes.empty())
        return;
    List::with(static_cast<Opcode>(bytes[0]), [&]<class T>(T first) {
        xdr::decoder in(bytes.subspan(1));
        xdr::codec<T>::decode(in, first);
        if (in.ok())
            same_again(first, in.position());
    });
}

template<class Arguments>
void arguments(xdr::decoder in)
{
    Arguments args(in);
    if (!args.ok())
        return;
    std::size_t at = in.position();
    while (args.next()) {
        (void)args.following(Arguments::opnum::illegal);
        const bool good = args.visit([&]<class Args>(const Args& each) {
            require(Args::opcode == args.opcode());
            // The opcode takes four bytes, so each operation brings the end nearer.
            require(in.position() >= at + 4);
            same_again(each, in.position() - at - 4);
        });
        if (!good)
            break;
        at = in.position();
    }
    require(args.index() <= args.head().operations);
}

template<class Reply, class Results, class Opcode>
void reply(view bytes)
{
    xdr::decoder in(bytes);
    Reply results(in);
    while (in.ok() && !results.complete()) {
        // The caller knows what comes next; here the message says it.
        xdr::decoder ahead(in);
        const auto opcode = static_cast<Opcode>(ahead.u32());
        const bool known = Results::with(opcode, [&]<class T>(T res) { (void)results.read(res); });
        if (!known) {
            status_alone<Opcode::illegal> res;
            const bool good = results.read(res);
            require(!good || opcode == Opcode::illegal);
            require(!in.ok() || opcode == Opcode::illegal);
        }
    }
}

void entries(view bytes)
{
    xdr::decoder in(bytes);
    readdir_reader reader(in);
    entry4 entry;
    std::size_t count = 0;
    while (reader.next(entry)) {
        require(fuzz::within(std::as_bytes(std::span(entry.name)), bytes));
        require(fuzz::within(entry.attrs.attr_vals, bytes));
        // Each takes at least its mark, cookie and three lengths.
        require(++count * 24 <= bytes.size());
    }
}

/// An ACL that is taken goes to the back ends and back as it is, and to POSIX and back with the same rights.
void access_list(const attributes& values)
{
    storage::access_list list, second;
    storage::set_attributes set;
    if (from_acl(values, list, set) != nfsstat4::ok || !set.acl)
        return;
    require(list.size() == values.acl.size() && list.size() <= max_aces);
    const acl_values told(list);
    attributes again;
    again.present = {attribute::acl};
    again.acl = told.view();
    require(from_acl(again, second, set) == nfsstat4::ok && second == list);
    require(encoded(told.view(), told.size()).size() <= told.size());
    require(storage::mode_of(storage::with_mode(list, 0640)) == 0640);
    for (const bool directory : {false, true}) {
        require(storage::inherited(list, directory).size() <= list.size());
        const auto mapped = posixfs::to_posix(list, directory);
        if (!mapped)
            continue;
        const auto value = posixfs::encode_posix_acl(mapped->access);
        const auto parsed = posixfs::parse_posix_acl(value);
        require(parsed && *parsed == mapped->access);
        const auto back = posixfs::to_posix(posixfs::to_nfs4(*mapped, directory), directory);
        require(back && back->access.size() == mapped->access.size() &&
                back->inherited.size() == mapped->inherited.size());
        for (std::size_t i = 0; i < back->access.size(); ++i)
            require(back->access[i] == mapped->access[i] || back->access[i].tag == posixfs::posix_tag::mask);
    }
    for (const std::uint32_t uid : {0U, 7U})
        (void)storage::rights_by(list, storage::attributes(), storage::credential(uid, 7),
                                 storage::ace_right::all);
}

void attribute_values(view bytes)
{
    xdr::decoder in(bytes);
    fattr4 raw;
    xdr::codec<fattr4>::decode(in, raw);
    if (!in.ok())
        return;
    same_again(raw, in.position());
    const bitmap4 supported = attributes_of_minor(2);
    attributes values;
    std::vector<std::byte> block(bytes.size() + 64);
    if (decode_attributes(raw, values)) {
        require(values.present == raw.attrmask);
        xdr::encoder out(block);
        encode_attributes(out, supported, values);
        require(out.ok());
        xdr::decoder again(out.bytes());
        fattr4 second;
        xdr::codec<fattr4>::decode(again, second);
        attributes read;
        require(again.at_end() && decode_attributes(second, read) && read.present == values.present);
        std::vector<std::byte> scratch(block.size());
        const nfsstat4 compared = compare_attributes(second, supported, values, scratch);
        require(compared == nfsstat4::same || compared == nfsstat4::inval);
    }
    attributes settable;
    if (decode_settable(raw, supported, attributes_for_create, settable) == nfsstat4::ok)
        require(settable.present == raw.attrmask && decode_attributes(raw, values));
    if (settable.present.test(attribute::acl) && settable.acl.size() <= max_aces)
        access_list(settable);
    if (const auto acl = posixfs::parse_posix_acl(bytes); acl && !acl->empty())
        require(posixfs::to_posix(posixfs::to_nfs4({*acl, {}}, false), false).has_value());
}

// Where a client says that it is called. What is read is an address with a port, which reads the same again, and is nobody else's.
void place(view bytes)
{
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::size_t end = std::min(text.find('\0'), text.size());
    const std::string_view netid = text.substr(0, end);
    const auto read = parse_universal_address(netid, text.substr(std::min(end + 1, text.size())));
    if (!read)
        return;
    require(read->at.port() != 0);
    const std::string address = read->at.address();
    const bool six = address.find(':') != std::string::npos;
    std::string again = address + "." + std::to_string(read->at.port() >> 8);
    again += "." + std::to_string(read->at.port() & 0xff);
    const std::string name = read->over == universal_address::transport::rdma ? "rdma" : "tcp";
    const auto second = parse_universal_address(name + (six ? "6" : ""), again);
    require(second && second->at.to_string() == read->at.to_string() && second->over == read->over);
    const auto own = at_home_of(*read, address);
    require(own && own->at.to_string() == read->at.to_string());
    require(!at_home_of(*read, address == "192.0.2.1" ? "192.0.2.2" : "192.0.2.1"));
}

} // namespace

VERBENA_FUZZ_TARGET(nfs4_compound)
{
    if (size == 0)
        return 0;
    const auto bytes = fuzz::bytes_of(data + 1, size - 1);
    switch (data[0]) {
    case 0: arguments<compound_arguments>(xdr::decoder(bytes)); break;
    case 1: one<all_arguments, nfs_opnum4>(bytes); break;
    case 2: reply<compound_reply, all_results, nfs_opnum4>(bytes); break;
    case 3: one<all_results, nfs_opnum4>(bytes); break;
    case 4: arguments<callback_arguments>(xdr::decoder(bytes)); break;
    case 5: one<all_callback_arguments, nfs_cb_opnum4>(bytes); break;
    case 6: reply<callback_reply, all_callback_results, nfs_cb_opnum4>(bytes); break;
    case 7: one<all_callback_results, nfs_cb_opnum4>(bytes); break;
    case 8: attribute_values(bytes); break;
    case 9: entries(bytes); break;
    case 10:
        if (bytes.size() >= 4) {
            const auto number = [&](std::size_t at) {
                return std::to_integer<std::uint32_t>(bytes[at]) << 8 |
                       std::to_integer<std::uint32_t>(bytes[at + 1]);
            };
            arguments<compound_arguments>(
                xdr::decoder(bytes.subspan(4), xdr::external_item{number(0), number(2)}));
        }
        break;
    case 11: place(bytes); break;
    default: break;
    }
    return 0;
}
