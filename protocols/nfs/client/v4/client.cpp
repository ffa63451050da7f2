// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/client/v4/client.hpp>

#include "../whole_directory.hpp"
#include "server_open.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace verbena::nfs::v4 {
namespace {

// What stands around a WRITE's data: a header with a credential, SEQUENCE, a handle.
constexpr std::uint32_t around_arguments = 1024;
// What stands around a READ's.
constexpr std::uint32_t around_results = 512;
constexpr std::uint32_t least_transfer = 4096;
// SEQUENCE, PUTFH, GETFH and GETATTR stand around LOOKUPs.
constexpr std::size_t around_lookups = 4;
constexpr std::size_t names_in_one_call = 4096; // bytes
constexpr std::uint32_t max_link = 4096;

bool name_fits(std::string_view name) noexcept { return name.size() <= client::max_name; }

std::string text_of(const rpc::payload& data)
{
    std::string text;
    for (const auto piece : data.pieces())
        text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return text;
}

file_attributes told(const attributes& values) noexcept
{
    file_attributes out;
    out.type = values.type;
    out.mode = values.mode & 07777;
    out.links = values.numlinks;
    out.uid = owner_number(values.owner);
    out.gid = owner_number(values.owner_group);
    out.size = values.size;
    out.used = values.space_used;
    out.device = values.rawdev;
    out.fsid = values.fsid;
    out.fileid = values.fileid;
    out.change = values.change;
    out.atime = values.time_access;
    out.mtime = values.time_modify;
    out.ctime = values.time_metadata;
    return out;
}

/// The names of `path` but for ".".
std::vector<std::string_view> names_of(std::string_view path)
{
    std::vector<std::string_view> names;
    while (!path.empty()) {
        const std::size_t end = path.find('/');
        const std::string_view name = path.substr(0, end);
        path = end == std::string_view::npos ? std::string_view() : path.substr(end + 1);
        if (!name.empty() && name != ".")
            names.push_back(name);
    }
    return names;
}

} // namespace

std::uint32_t owner_number(std::string_view owner) noexcept
{
    std::uint32_t number = 0;
    const auto [end, code] = std::from_chars(owner.data(), owner.data() + owner.size(), number);
    return code == std::errc() && end == owner.data() + owner.size() ? number : file_attributes::nobody;
}

result<file_attributes> read_attributes(const fattr4& raw) noexcept
{
    attributes values;
    if (!decode_attributes(raw, values))
        return error(std::errc::bad_message, "attributes that can't be read");
    if (!values.present.test(attribute::type))
        return error(std::errc::protocol_error, "the server does not tell what a file is");
    return told(values);
}

client::client(rpc::client_transport& transport, const identity& who, std::string name, minor_versions spoken,
               callback_service* callbacks)
    : session_(transport, who, std::move(name), spoken, callbacks)
{
    session_.reclaim_by(this);
}

client::~client() = default;

task<result<node>> client::root()
{
    operations call(PUTROOTFH4args(), GETFH4args(), file_attributes_wanted());
    auto ran = co_await session_.run(call);
    if (!ran)
        co_return ran.error();
    co_return co_await node_from(call.get<1>(), call.get<2>());
}

task<result<file_attributes>> client::getattr(const known_handle& object)
{
    operations call(PUTFH4args{object.bytes()}, file_attributes_wanted());
    auto ran = co_await session_.run(call);
    if (!ran)
        co_return ran.error();
    auto read = read_attributes(call.get<1>().obj_attributes);
    if (read && needs_names(*read))
        co_await name_owners(call.get<1>().obj_attributes, *read);
    co_return read;
}

task<result<void>> client::setattr(const known_handle& object, new_attributes attributes)
{
    const encoded_attributes encoded(attributes);
    SETATTR4args args;
    args.stateid = stateid4::anonymous();
    args.obj_attributes = encoded.raw();
    operations call(PUTFH4args{object.bytes()}, args);
    call.once();
    changed(object, nullptr);
    auto ran = co_await session_.run(call);
    if (!ran && ran.error().code() == make_error_code(nfsstat4::badowner) && names_ != nullptr) {
        task<result<void>> again = setattr_by_name(object, attributes);
        ran = co_await again;
    }
    changed(object, nullptr);
    // What opens may have by a delegation was allowed before.
    if (attributes.mode || attributes.uid || attributes.gid)
        begin_return(delegated(object));
    co_return ran;
}

// Of a server that wants no numbers.
task<result<void>> client::setattr_by_name(const known_handle& object, const new_attributes& attributes)
{
    std::vector<account> those;
    if (attributes.uid)
        those.push_back({account_kind::user, *attributes.uid});
    if (attributes.gid)
        those.push_back({account_kind::group, *attributes.gid});
    const auto told = co_await names_->texts_of(those);
    std::array<std::string, 2> texts; // of the owner and the group
    for (std::size_t i = 0; i < told.size(); ++i) {
        if (told[i].how == user_names::outcome::later)
            co_return error(std::errc::timed_out,
                            "an owner's name, which SETATTR needs, can't be found out now", those[i].id);
        if (told[i].how != user_names::outcome::found)
            co_return error(make_error_code(nfsstat4::badowner), "SETATTR of an owner without a name",
                            those[i].id);
        texts[those[i].kind == account_kind::user ? 0 : 1] = *told[i].text;
    }
    const encoded_attributes encoded(attributes, texts[0], texts[1]);
    SETATTR4args args;
    args.stateid = stateid4::anonymous();
    args.obj_attributes = encoded.raw();
    operations call(PUTFH4args{object.bytes()}, args);
    call.once();
    co_return co_await session_.run(call);
}

// With its owners' numbers here. Both last until it is done.
task<result<node>> client::node_from(const GETFH4res& object, const GETATTR4res& told)
{
    auto found = node_of(object, told);
    if (found && needs_names(found->attributes))
        co_await name_owners(told.obj_attributes, found->attributes);
    co_return found;
}

task<void> client::name_owners(const fattr4& raw, file_attributes& to)
{
    attributes values;
    std::optional<time_point> until;
    if (decode_attributes(raw, values))
        co_await name_owners(values, to, until);
}

// `until`: how long all names that one call told are waited for together; it begins with the first. Behind one that is late, others would be late too: they
// are what is known of them.
task<void> client::name_owners(const attributes& values, file_attributes& to,
                               std::optional<time_point>& until)
{
    const task_context& context = co_await current_context();
    for (const account_kind kind : {account_kind::user, account_kind::group}) {
        const bool is_user = kind == account_kind::user;
        const std::string_view text = is_user ? values.owner : values.owner_group;
        if ((is_user ? to.uid : to.gid) != file_attributes::nobody || !split_owner(text))
            continue;
        const time_point now = context.shard->clock().now();
        if (!until)
            until = now + names_->patience();
        std::optional<std::uint32_t> id;
        if (now < *until) {
            task<user_names::id_answer> asking = names_->id_of(kind, std::string(text), *until);
            const user_names::id_answer known = co_await asking;
            if (known.how == user_names::outcome::found)
                id = known.id;
            if (known.how == user_names::outcome::later || known.how == user_names::outcome::given_up)
                until = now;
        }
        if (now >= *until)
            id = names_->known_id(kind, text);
        (is_user ? to.uid : to.gid) = id.value_or(file_attributes::nobody);
    }
}

task<result<node>> client::lookup(const known_handle& directory, std::string_view name)
{
    if (!name_fits(name))
        co_return name_too_long;
    if (name == "..") {
        operations call(PUTFH4args{directory.bytes()}, LOOKUPP4args(), GETFH4args(),
                        file_attributes_wanted());
        auto ran = co_await session_.run(call);
        if (!ran)
            co_return ran.error();
        co_return co_await node_from(call.get<2>(), call.get<3>());
    }
    operations call(PUTFH4args{directory.bytes()}, LOOKUP4args{name}, GETFH4args(), file_attributes_wanted());
    auto ran = co_await session_.run(call);
    if (!ran)
        co_return ran.error();
    co_return co_await node_from(call.get<2>(), call.get<3>());
}

task<result<node>> client::walk(const known_handle& start, std::string_view path, bool follow_last)
{
    const std::vector<std::string_view> names = names_of(path);
    for (const std::string_view name : names) {
        if (!name_fits(name))
            co_return name_too_long;
        if (name == "..")
            co_return co_await walk_by_steps(start, path, follow_last);
    }
    if (session_.sessions() == 0) {
        auto opened = co_await session_.open(); // how many LOOKUPs fit in a call
        if (!opened)
            co_return opened.error();
    }
    const std::size_t most =
        std::max<std::size_t>(session_.channel().maxoperations, around_lookups + 1) - around_lookups;
    node here;
    here.handle = start;
    std::size_t done = 0;
    do {
        std::size_t count = 0;
        for (std::size_t bytes = 0; done + count < names.size() && count < most; ++count) {
            bytes += 8 + xdr::padded(names[done + count].size());
            if (count != 0 && bytes > names_in_one_call)
                break;
        }
        const lookup_path below{std::span(names).subspan(done, count)};
        operations call(PUTFH4args{here.handle.bytes()}, below, GETFH4args(), file_attributes_wanted());
        auto ran = co_await session_.run(call);
        if (!ran && (ran.error().code() == make_error_code(nfsstat4::symlink) ||
                     ran.error().code() == make_error_code(nfsstat4::notdir)))
            co_return co_await walk_by_steps(start, path, follow_last);
        if (!ran)
            co_return ran.error();
        auto found = co_await node_from(call.template get<2>(), call.template get<3>());
        if (!found)
            co_return found.error();
        here = *found;
        done += count;
    } while (done < names.size());
    if (follow_last && !names.empty() && here.attributes.type == nfs_ftype4::lnk)
        co_return co_await walk_by_steps(start, path, follow_last);
    co_return here;
}

task<result<node>> client::walk_by_steps(known_handle start, std::string_view path, bool follow_last)
{
    std::string rest(path);
    std::size_t at = 0; // of it
    node here;
    here.handle = start;
    bool known = false; // its attributes
    unsigned links = 0;
    for (;;) {
        const std::size_t begin = rest.find_first_not_of('/', at);
        if (begin == std::string::npos)
            break;
        at = std::min(rest.find('/', begin), rest.size());
        const std::string name = rest.substr(begin, at - begin);
        if (name == ".")
            continue;
        auto next = co_await lookup(here.handle, name);
        if (!next)
            co_return next.error();
        const bool last = rest.find_first_not_of('/', at) == std::string::npos;
        if (next->attributes.type == nfs_ftype4::lnk && (!last || follow_last)) {
            auto target = co_await readlink(next->handle);
            if (!target)
                co_return target.error();
            if (++links > max_links)
                co_return error(std::errc::too_many_symbolic_link_levels, "walk", links);
            if (target->starts_with('/'))
                co_return error(std::errc::too_many_symbolic_link_levels,
                                "an absolute symbolic link leads out of the export");
            rest = *target + "/" + rest.substr(at);
            at = 0;
            continue;
        }
        here = *next;
        known = true;
    }
    if (known)
        co_return here;
    auto attributes = co_await getattr(here.handle);
    if (!attributes)
        co_return attributes.error();
    here.attributes = *attributes;
    co_return here;
}

task<result<std::uint32_t>> client::access(const known_handle& object, std::uint32_t wanted)
{
    operations call(PUTFH4args{object.bytes()}, ACCESS4args{wanted});
    auto ran = co_await session_.run(call);
    if (!ran)
        co_return ran.error();
    co_return call.get<1>().access;
}

task<result<std::string>> client::readlink(const known_handle& link)
{
    operations call(PUTFH4args{link.bytes()}, READLINK4args());
    // No Write chunk: a target is short, and servers return it inline whatever is offered.
    call.yields(compound_call::usual_results + max_link);
    auto ran = co_await session_.run(call);
    if (!ran)
        co_return ran.error();
    const auto& target = call.get<1>().link;
    if (target.length > max_link)
        co_return error(std::errc::filename_too_long, "the target of a symbolic link", target.length);
    auto data = call.reply().take(target);
    if (!data)
        co_return data.error();
    co_return text_of(*data);
}

task<result<node>> client::mkdir(const known_handle& directory, std::string_view name,
                                 new_attributes attributes)
{
    if (!name_fits(name))
        co_return name_too_long;
    const encoded_attributes encoded(attributes);
    CREATE4args args;
    args.objtype.type = nfs_ftype4::dir;
    args.objname = name;
    args.createattrs = encoded.raw();
    operations call(PUTFH4args{directory.bytes()}, args, GETFH4args(), file_attributes_wanted());
    call.once();
    auto ran = co_await session_.run(call);
    if (!ran)
        co_return ran.error();
    co_return co_await node_from(call.get<2>(), call.get<3>());
}

task<result<node>> client::symlink(const known_handle& directory, std::string_view name,
                                   std::string_view target, new_attributes attributes)
{
    if (!name_fits(name) || target.size() > max_link)
        co_return name_too_long;
    const encoded_attributes encoded(attributes);
    verbena::lease block = co_await transport().acquire(max_link);
    if (!block)
        co_return error(std::errc::not_enough_memory, "CREATE");
    std::memcpy(block.data(), target.data(), target.size());
    const std::span<const std::byte> bytes(block.data(), target.size());
    const rpc::payload text(std::move(block), bytes);
    CREATE4args args;
    args.objtype.type = nfs_ftype4::lnk;
    args.objtype.linkdata.external = true;
    args.objtype.linkdata.length = static_cast<std::uint32_t>(target.size());
    args.objname = name;
    args.createattrs = encoded.raw();
    operations call(PUTFH4args{directory.bytes()}, args, GETFH4args(), file_attributes_wanted());
    call.once().carries(text);
    auto ran = co_await session_.run(call);
    if (!ran)
        co_return ran.error();
    co_return co_await node_from(call.get<2>(), call.get<3>());
}

task<result<void>> client::remove(const known_handle& directory, std::string_view name)
{
    if (!name_fits(name))
        co_return name_too_long;
    operations call(PUTFH4args{directory.bytes()}, REMOVE4args{name});
    call.once();
    co_return co_await session_.run(call);
}

task<result<void>> client::rename(const known_handle& from_directory, std::string_view from,
                                  const known_handle& to_directory, std::string_view to)
{
    if (!name_fits(from) || !name_fits(to))
        co_return name_too_long;
    operations call(PUTFH4args{from_directory.bytes()}, SAVEFH4args(), PUTFH4args{to_directory.bytes()},
                    RENAME4args{from, to});
    call.once();
    co_return co_await session_.run(call);
}

task<result<void>> client::link(const known_handle& object, const known_handle& directory,
                                std::string_view name)
{
    if (!name_fits(name))
        co_return name_too_long;
    operations call(PUTFH4args{object.bytes()}, SAVEFH4args(), PUTFH4args{directory.bytes()},
                    LINK4args{name});
    call.once();
    auto ran = co_await session_.run(call);
    changed(object, nullptr);
    co_return ran;
}

task<result<directory_page>> client::readdir(const known_handle& directory, const directory_page& before,
                                             bool plus)
{
    READDIR4args args;
    args.cookie = before.cookie;
    args.cookieverf = before.verifier;
    args.dircount = args.maxcount = limits_.directory;
    args.attr_request = {attribute::rdattr_error};
    if (plus)
        args.attr_request = file_attribute_numbers | bitmap4{attribute::rdattr_error, attribute::filehandle};
    operations call(PUTFH4args{directory.bytes()}, args);
    call.yields(limits_.directory + 64);
    auto ran = co_await session_.run(call);
    if (!ran)
        co_return ran.error();
    directory_page page;
    page.verifier = call.get<1>().cookieverf;
    page.cookie = before.cookie;
    xdr::decoder& in = call.reply().results();
    readdir_reader reader(in);
    std::optional<time_point> names_until;
    for (entry4 entry; reader.next(entry);) {
        directory_entry& added = page.entries.emplace_back();
        added.name = entry.name;
        page.cookie = entry.cookie;
        attributes values;
        if (!decode_attributes(entry.attrs, values))
            co_return error(std::errc::bad_message, "attributes of an entry that can't be read",
                            entry.cookie);
        if (plus && values.present.test(attribute::type) && values.present.test(attribute::filehandle))
            added.found = node{known_handle(values.filehandle), told(values)};
        if (added.found && needs_names(added.found->attributes))
            co_await name_owners(values, added.found->attributes, names_until);
    }
    if (!in.ok())
        co_return in.failure();
    page.eof = reader.eof();
    if (!page.eof && page.entries.empty())
        co_return error(std::errc::protocol_error, "a page of a directory holds nothing and is not the last");
    co_return std::move(page);
}

task<result<std::vector<directory_entry>>> client::list(const known_handle& directory, bool plus,
                                                        std::size_t most)
{
    return whole_directory<directory_page>(*this, directory, plus, most, false);
}

task<result<file_system_space>> client::space(const known_handle& object)
{
    GETATTR4args wanted;
    wanted.attr_request = {attribute::space_total, attribute::space_free, attribute::space_avail,
                           attribute::files_total, attribute::files_free, attribute::files_avail};
    operations call(PUTFH4args{object.bytes()}, wanted);
    auto ran = co_await session_.run(call);
    if (!ran)
        co_return ran.error();
    attributes values;
    if (!decode_attributes(call.get<1>().obj_attributes, values))
        co_return error(std::errc::bad_message, "attributes that can't be read");
    file_system_space out;
    out.total = values.space_total;
    out.free = values.space_free;
    out.available = values.space_avail;
    out.files = values.files_total;
    out.files_free = values.files_free;
    out.files_available = values.files_avail;
    co_return out;
}

task<result<void>> client::learn_limits(const known_handle& object)
{
    GETATTR4args wanted;
    wanted.attr_request = {attribute::maxread, attribute::maxwrite};
    operations call(PUTFH4args{object.bytes()}, wanted);
    auto ran = co_await session_.run(call);
    if (!ran)
        co_return ran.error();
    attributes values;
    if (!decode_attributes(call.get<1>().obj_attributes, values))
        co_return error(std::errc::bad_message, "attributes that can't be read");
    const auto limit = [&](attribute number, std::uint64_t value, std::uint32_t message,
                           std::uint32_t around) {
        const std::uint32_t room = message > around ? message - around : 0;
        std::uint64_t most = client_session::max_transfer;
        if (values.present.test(number))
            most = std::min(most, value);
        return static_cast<std::uint32_t>(
            std::max<std::uint64_t>(std::min<std::uint64_t>(most, room), least_transfer));
    };
    const channel_attrs4& channel = session_.channel();
    limits_.read = limit(attribute::maxread, values.maxread, channel.maxresponsesize, around_results);
    limits_.write = limit(attribute::maxwrite, values.maxwrite, channel.maxrequestsize, around_arguments);
    limits_.directory = std::min(limits_.directory, limits_.read);
    co_return result<void>();
}

} // namespace verbena::nfs::v4
