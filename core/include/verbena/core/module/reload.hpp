// SPDX-License-Identifier: Apache-2.0
// reload: a running program reads its configuration again, and its modules take what can change without a restart.
//
// It has two phases. First each module makes a plan: it compares what it runs with what is asked for, and opens what will be new. A
// mistake anywhere ends the reload there, and nothing has changed. Then each plan is applied, which can't fail. docs/internals/control.md.
#pragma once

#include <verbena/core/module/settings.hpp>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

class module_table;

/// One difference between what runs and what is asked for.
struct reload_change {
    std::string what;           ///< as people call it: "export /data", "device disk0", "nfs.lease"
    std::string change;         ///< "added", "removed", "60, was 90"
    bool needs_restart = false; ///< it stays as it is until the program is started again
};

/// What a module will do. Made by plan_reload(), applied or dropped on the same thread. To drop it closes what was opened for it;
/// nothing of it was ever reached by a client.
class reload_plan {
public:
    virtual ~reload_plan() = default;

    /// Does what `changes` says, except what needs a restart. Called once. It waits for shards, for some
    /// seconds at most. A shard that hangs takes the change when it turns again, and `late` names it. What a client still uses
    /// is closed later, when nobody uses it: that is not waited for.
    virtual void apply() noexcept = 0;

    std::vector<reload_change> changes;
    /// After apply(), for people: "shard 2 does not run its tasks, and takes the exports when it does".
    std::vector<std::string> late;
};

/// A module that can change while it runs implements this too. All settings that it declares are its own to compare: the service
/// compares those of other modules, and says that they need a restart. Listeners are the service's.
class reloadable {
public:
    /// Called between start() and closing(), on a thread that is no shard's, one call at a time. It may wait for disks. `values` is
    /// as for module::configure(). module_table::use() refuses a back end or a filter that was not in use at the start, since nobody
    /// prepared it. `looks_only`: the plan is looked at and dropped; whatever may be seen from outside, such as a file that is
    /// made, stays as it is. Throws config_error, with the place in the file, or start_error. What runs has not changed then.
    virtual std::unique_ptr<reload_plan> plan_reload(setting_values& values, module_table& modules,
                                                     bool looks_only) = 0;

protected:
    ~reloadable() = default;
};

/// Whether a setting has another value: a default is like the same value written.
bool differ(const setting_values& running, const setting_values& wanted, std::string_view name);
/// A value as people read it: "60", "true", "a, b"; "nothing" for one that is not there; of tables how many there are; "(not shown)" for
/// what may be a secret (is_secret()).
std::string reload_text(const setting_values& values, std::string_view name);
/// How a setting has changed, for people: "60, was 90", or "changed" for what may be a secret.
std::string change_text(const setting_values& running, const setting_values& wanted, std::string_view name);
/// Adds a change for each setting of `declared` whose value differs, tables by each setting in them. `path` stands before names: "nfs.".
void note_changes(std::span<const setting> declared, const setting_values& running,
                  const setting_values& wanted, const std::string& path, bool needs_restart,
                  std::vector<reload_change>& to);

} // namespace verbena

#pragma GCC visibility pop
