// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/module/module.hpp>
#include <verbena/core/suggestion.hpp>

#include <algorithm>
#include <exception>

namespace verbena {

namespace {

constexpr std::size_t longest_name = 32;

bool is_module_name(std::string_view name) noexcept
{
    const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
    return !name.empty() && name.size() <= longest_name && name.front() >= 'a' && name.front() <= 'z' &&
           std::ranges::all_of(name, plain);
}

std::vector<std::string_view> needs_of(const module_descriptor& d)
{
    std::vector<std::string_view> names;
    for (const char* const* need = d.needs; need != nullptr && *need != nullptr; ++need)
        names.emplace_back(*need);
    return names;
}

} // namespace

// The newest first: a module may hold what one before it made.
module_table::~module_table()
{
    while (!entries_.empty())
        entries_.pop_back();
}

namespace {

[[noreturn]] void refuse_module(const std::string& from, const std::string& why)
{
    throw config_error("module (" + from + "): " + why);
}

} // namespace

void module_table::check(const module_descriptor& d, const std::string& from) const
{
    const auto fail = [&from](const std::string& why) { refuse_module(from, why); };
    if (d.size != sizeof(module_descriptor))
        fail("its descriptor has " + std::to_string(d.size) + " bytes, not " +
             std::to_string(sizeof(module_descriptor)) + ": build it against the headers of this version");
    if (d.name == nullptr || !is_module_name(d.name))
        fail("its name " + (d.name == nullptr ? std::string() : '"' + std::string(d.name) + "\" ") +
             "must be a letter and then letters, digits and _, all in lower case, at most " +
             std::to_string(longest_name));
    const std::string name = d.name;
    if (d.version == nullptr || d.summary == nullptr)
        fail(name + " has no version or no summary");
    if (const entry* other = look(name); other != nullptr)
        fail("the name " + name + " is taken by a module from elsewhere (" + other->from +
             "); leave one of them out");
    if (entries_.size() == max_modules)
        fail("there are " + std::to_string(max_modules) + " modules before " + name + ", and no more may be");
}

void module_table::add(const module_descriptor& d, std::unique_ptr<module> made, std::string from)
{
    check(d, from);
    if (made == nullptr)
        refuse_module(from, std::string(d.name) + " can't be made: its function returned nothing");
    entries_.push_back({&d, std::move(made), std::move(from), false});
}

void module_table::add(const module_descriptor& d, std::string from, std::string_view declared)
{
    check(d, from);
    const std::string name = d.name;
    if (d.create == nullptr)
        refuse_module(from, name + " has no function that makes it");
    std::unique_ptr<module> made;
    try {
        made = d.create();
    } catch (const std::exception& e) {
        refuse_module(from, name + " can't be made: " + e.what());
    } catch (...) {
        refuse_module(from, name + " can't be made: it threw something that is no std::exception");
    }
    // Only what that role uses was compared with what this program has.
    if (made != nullptr && !declared.empty() && made->role_word() != declared)
        refuse_module(from,
                      name + " is declared as VERBENA_MODULE(" + std::string(declared) + ", ...), but is a " +
                          std::string(made->role()) +
                          (made->role_word().empty()
                               ? ", which none of the roles that files may have derives from"
                               : ": write VERBENA_MODULE(" + std::string(made->role_word()) + ", ...)"));
    add(d, std::move(made), std::move(from));
}

const module_table::entry* module_table::look(std::string_view name) const noexcept
{
    const auto found = std::ranges::find(entries_, name, &entry::name);
    return found == entries_.end() ? nullptr : &*found;
}

void module_table::mark_used(std::string_view name)
{
    for (entry& e : entries_) {
        if (e.name() == name && !e.used) {
            if (has_begun_)
                throw config_error(
                    "the " + std::string(e.object->role()) + ' ' + std::string(name) +
                    " was not in use when the program started, so nobody prepared it: restart the "
                    "program to use it");
            e.used = true;
            for (const std::string_view need : needs_of(*e.descriptor))
                mark_used(need);
        }
    }
}

void module_table::no_such(std::string_view name, std::string_view what, const std::string& where,
                           const std::vector<std::string_view>& known)
{
    throw config_error(
        where + "no " + std::string(what) + ' ' + std::string(name) +
        (known.empty() ? "; there is none at all, so load a module" : did_you_mean(name, known)));
}

namespace {

enum class visit : std::uint8_t { none, begun, done };

} // namespace

std::vector<module*> module_table::in_order()
{
    std::vector<module*> order;
    std::vector<visit> state(entries_.size(), visit::none);
    std::vector<std::string> path;
    const auto go = [&](const auto& self, std::size_t i) -> void {
        const entry& e = entries_[i];
        if (state[i] == visit::done)
            return;
        path.emplace_back(e.name());
        if (state[i] == visit::begun) {
            std::string circle;
            for (auto at = std::ranges::find(path, path.back()); at != path.end(); ++at)
                circle += (circle.empty() ? "" : " needs ") + *at;
            throw config_error("modules need each other in a circle, so that none can be started first: " +
                               circle);
        }
        state[i] = visit::begun;
        for (const std::string_view need : needs_of(*e.descriptor)) {
            const entry* found = look(need);
            if (found == nullptr)
                throw config_error("module " + std::string(e.name()) + " (" + e.from + ") needs the module " +
                                   std::string(need) + ", which is not here: load it too");
            self(self, std::size_t(found - entries_.data()));
        }
        state[i] = visit::done;
        path.pop_back();
        order.push_back(e.object.get());
    };
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        if (entries_[i].used)
            go(go, i);
    }
    return order;
}

std::string_view module_table::name_of(const module& m) const noexcept
{
    for (const entry& e : entries_) {
        if (e.object.get() == &m)
            return e.name();
    }
    return {};
}

} // namespace verbena
