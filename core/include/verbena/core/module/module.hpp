// SPDX-License-Identifier: Apache-2.0
// module: a named part that a program is composed of, such as a protocol, a back end or a filter.
//
// A module says what it is called, what it needs and what it can be told; its role (storage::backend_module,
// storage::filter_module, rpc::protocol_module) says what it does. Modules stand in a table, where the program puts each of them
// explicitly: there are no static constructors, and nothing stands there by being linked. Whoever composes a program knows
// roles, never modules.
//
// A module's life: its descriptor's create(), configure() (of protocols), prepare(), start(), stop(), destruction; each at most once,
// one after the other, on a thread that is no shard: mostly the one that composes the program. What fails on the way ends in
// stop() of those that were started. When modules are destroyed the shards have ended, and the host is still there.
#pragma once

#include <verbena/core/module/settings.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

class peer_shares;

class metric_registry;
class module;
class module_table;
class runtime;

/// What a module says of itself before it exists. Lives as long as the program.
struct module_descriptor {
    /// bytes, as the module was built: a later program may have more fields
    std::size_t size = sizeof(module_descriptor);
    const char* name =
        nullptr; ///< by which a configuration asks for it: lower-case letters, digits and _, at most 32
    const char* version = nullptr; ///< for people
    const char* summary = nullptr; ///< a sentence without a full stop
    /// Names of modules without which it can't work, ended by nullptr; nullptr for none. They are started before it.
    const char* const* needs = nullptr;
    /// May throw; the module is then not there.
    std::unique_ptr<module> (*create)() = nullptr;
};

/// What the program has for the modules that it starts. Outlives them.
class module_host {
public:
    /// Never to be started or stopped by a module.
    virtual runtime& shards() noexcept = 0;
    /// Where the program's metrics are registered. Any thread.
    virtual metric_registry& metrics() noexcept = 0;
    /// The modules of the program, so that one may find another.
    virtual module_table& modules() noexcept = 0;
    /// What each peer of the program holds: a module that takes connections by itself (verbs::protocol_module) charges them, and what it
    /// makes for them.
    virtual peer_shares& peers() noexcept = 0;
    /// Whether anything in the program listens at RDMA devices: no shard's thread may then take another user's rights.
    virtual bool uses_rdma_devices() const noexcept = 0;
    /// A directory of the program's own for what must survive a restart, which nobody else may write to. Made when it is first
    /// asked for. Throws config_error with the cure.
    virtual const std::string& state_directory() = 0;

protected:
    ~module_host() = default;
};

/// Part of a program that its settings name: a protocol, a back end, a filter, or what others of these use. Its
/// role's interface says more. Made by a descriptor, owned by the table.
///
/// One call at a time, in the order of the functions below, on the thread that composes the program; stop() may
/// come on another one. Neither is a shard, so each call may block. Any thread may ask role(). What is made on a
/// shard ends there, before stop() returns.
class module {
public:
    virtual ~module() = default;
    module() = default;
    module(const module&) = delete;
    module& operator=(const module&) = delete;

    /// What the role is called, for people: "protocol", "back end", "filter". A role's interface answers.
    virtual std::string_view role() const noexcept = 0;
    /// The word that its file declares (VERBENA_MODULE): "backend", "block", "filter", "program", "verbs". A role's interface answers; what has none can't
    /// come from a file.
    virtual std::string_view role_word() const noexcept { return {}; }
    /// What it can be told; where that stands is a matter of the role.
    virtual std::vector<setting> settings() const { return {}; }
    /// Of protocols. Reads `values`, which were compared with settings() and have defaults filled in. Opens nothing: a configuration may be
    /// read to be looked at alone. Other modules that it will use are asked for here (module_table::use). Throws config_error for
    /// what can't work together. May add to `values` what follows from them, which is shown as the effective configuration.
    virtual void configure(setting_values& values, module_table& modules) { (void)values, (void)modules; }
    /// Does to the process what must be done before it has threads (capabilities, limits). Of modules in use.
    virtual void prepare() {}
    /// Opens files, makes keys, registers metrics. What it throws ends the start with its message. `host` outlives the module.
    virtual void start(module_host& host) { (void)host; }
    /// Gives back what start() took on the shards, which still run; what it served has ended before. Called after a start() that
    /// threw, too. Must return: a
    /// program that waits for it in vain says which module that is, and ends.
    virtual void stop() noexcept {}
};

/// The modules of one program, by name. For set-up and for the thread that composes; const functions on any thread later.
class module_table {
public:
    static constexpr std::size_t max_modules = 256; ///< of one program

    /// A module in the table.
    struct entry {
        const module_descriptor* descriptor; ///< as its file or the program declares it
        std::unique_ptr<module> object;      ///< owned by the table
        std::string from;                    ///< "built in", or the file
        bool used = false; ///< use() was called for it, or for what needs it: it is prepared and started
        /// By which settings and other modules name it.
        std::string_view name() const noexcept { return descriptor->name; }
    };

    module_table() = default;
    module_table(const module_table&) = delete;
    ~module_table();

    /// Makes a module and adds it. Throws config_error, with `from` in it, for a descriptor that breaks a rule, a name that is
    /// taken, and a create() that throws or returns nothing. `declared`: the role that its file says it has, which it must have; empty: none
    /// says so.
    void add(const module_descriptor& descriptor, std::string from = "built in",
             std::string_view declared = {});
    /// Likewise, of one that was made already; the descriptor's create() may be missing.
    void add(const module_descriptor& descriptor, std::unique_ptr<module> made, std::string from);

    /// In the order of add().
    std::span<const entry> all() const noexcept { return entries_; }
    /// nullptr if there is none, or it has another role.
    template<class Role = module>
    Role* find(std::string_view name) const noexcept
    {
        const entry* e = look(name);
        return e == nullptr ? nullptr : dynamic_cast<Role*>(e->object.get());
    }
    /// Names of the modules that have a role.
    template<class Role>
    std::vector<std::string_view> names() const
    {
        std::vector<std::string_view> found;
        for (const entry& e : entries_) {
            if (dynamic_cast<const Role*>(e.object.get()) != nullptr)
                found.push_back(e.name());
        }
        return found;
    }
    /// The module of that name and role, which will then be prepared and started, and what it needs with it. Throws config_error
    /// that says which names there are: `where` and then "no back end posixf; did you mean posixfs?", of `what` "back end".
    template<class Role>
    Role& use(std::string_view name, std::string_view what, const std::string& where = {})
    {
        if (Role* found = find<Role>(name); found != nullptr) {
            mark_used(name);
            return *found;
        }
        no_such(name, what, where, names<Role>());
    }
    /// Likewise, of one that is there. Throws config_error once start_began() was called, if nobody has used it before.
    void mark_used(std::string_view name);
    /// From now on no other module comes into use: what is prepared before the program has threads can't be later.
    void start_began() noexcept { has_begun_ = true; }

    /// Those in use, each behind what it needs. Throws config_error for a need that nobody meets, and for a circle.
    std::vector<module*> in_order();
    /// "" for one that is not here.
    std::string_view name_of(const module& m) const noexcept;

private:
    const entry* look(std::string_view name) const noexcept;
    void check(const module_descriptor& descriptor, const std::string& from) const;
    [[noreturn]] static void no_such(std::string_view name, std::string_view what, const std::string& where,
                                     const std::vector<std::string_view>& known);
    std::vector<entry> entries_;
    bool has_begun_ = false;
};

} // namespace verbena

#pragma GCC visibility pop
