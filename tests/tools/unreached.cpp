// SPDX-License-Identifier: Apache-2.0
// Passes for clang, loaded by -fpass-plugin, for what is compiled at -O0 with a sanitizer.
//
// The first takes code out of coroutines that is never reached. Of each coroutine clang makes four functions: what
// runs up to the first suspension, what goes on after one, and two that destroy. Each begins as a copy of the whole
// body. With optimization the passes behind take out what can't be reached in it. At -O0 there are none, and all
// four copies go through the sanitizer and the code generator: a third of the machine code of our tests.
//
// The second takes in calls of what is trivial: `unique_ptr::get`, `span::size`, `coroutine_handle::resume`. At -O0
// each is a function with a frame, and most have a chain of others beneath them. The sanitizer comes behind and looks
// at what it looked at before: each access of the callee is one of the caller's now.
#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/Analysis/InlineCost.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/Attributes.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Passes/PassPlugin.h>
#include <llvm/Transforms/IPO/GlobalDCE.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/SCCP.h>
#include <llvm/Transforms/Utils/Cloning.h>
#include <llvm/Transforms/Utils/Local.h>
#include <llvm/Transforms/Utils/PromoteMemToReg.h>

namespace {
struct unreached_parts : llvm::PassInfoMixin<unreached_parts> {
    static bool isRequired() { return true; } // at -O0 too

    llvm::PreservedAnalyses run(llvm::Module& module, llvm::ModuleAnalysisManager& analyses)
    {
        auto& known = analyses.getResult<llvm::FunctionAnalysisManagerModuleProxy>(module).getManager();
        for (llvm::Function& function : module) {
            if (function.isDeclaration() || !is_part(module, function)) {
                continue;
            }
            // Where a cleanup leads to is a constant in the copies that destroy: this one follows it.
            llvm::SCCPPass().run(function, known);
            llvm::removeUnreachableBlocks(function);
            known.invalidate(function, llvm::PreservedAnalyses::none());
        }
        return llvm::PreservedAnalyses::none();
    }

    // Whether it is one of the four: the other three have the name of the first and an ending.
    static bool is_part(const llvm::Module& module, const llvm::Function& function)
    {
        const llvm::StringRef name = function.getName();
        return name.ends_with(".resume") || name.ends_with(".destroy") || name.ends_with(".cleanup") ||
               module.getFunction((name + ".resume").str()) != nullptr;
    }
};

struct trivial_calls : llvm::PassInfoMixin<trivial_calls> {
    static bool isRequired() { return true; }

    // Instructions of what is taken in, and calls among them. In a long function, as the body of a test is, what is
    // longer than a call only makes more code.
    static constexpr unsigned longest = 24, most_calls = 3, long_function = 400, longest_in_long = 5;

    llvm::PreservedAnalyses run(llvm::Module& module, llvm::ModuleAnalysisManager& analyses)
    {
        auto& known = analyses.getResult<llvm::FunctionAnalysisManagerModuleProxy>(module).getManager();
        llvm::DenseSet<llvm::Function*> seen;
        llvm::DenseMap<llvm::Function*, unsigned> trivial;
        for (llvm::Function& function : module) {
            visit(function, known, seen, trivial);
        }
        llvm::GlobalDCEPass().run(module, analyses); // what no one calls any more
        return llvm::PreservedAnalyses::none();
    }

private:
    using lengths = llvm::DenseMap<llvm::Function*, unsigned>;

    // What it calls comes first, so that of a chain of trivial functions nothing is left.
    static void visit(llvm::Function& function, llvm::FunctionAnalysisManager& known,
                      llvm::DenseSet<llvm::Function*>& seen, lengths& trivial)
    {
        if (function.isDeclaration() || !seen.insert(&function).second) {
            return;
        }
        llvm::SmallVector<llvm::CallBase*, 32> calls;
        for (llvm::BasicBlock& block : function) {
            for (llvm::Instruction& each : block) {
                if (auto* call = llvm::dyn_cast<llvm::CallBase>(&each);
                    call != nullptr && call->getCalledFunction() != nullptr &&
                    !call->getCalledFunction()->isDeclaration()) {
                    calls.push_back(call);
                }
                // What nobody uses is read all the same, since a test may read what is gone for the sake of reading.
                if (auto* load = llvm::dyn_cast<llvm::LoadInst>(&each);
                    load != nullptr && load->use_empty() && !load->isAtomic()) {
                    load->setVolatile(true);
                }
            }
        }
        for (llvm::CallBase* call : calls) {
            visit(*call->getCalledFunction(), known, seen, trivial);
        }
        promote(function);
        const unsigned limit = function.getInstructionCount() > long_function ? longest_in_long : longest;
        bool changed = false;
        for (llvm::CallBase* call : calls) {
            const auto found = trivial.find(call->getCalledFunction());
            if (found != trivial.end() && found->second <= limit && may_take_in(function, *call)) {
                llvm::InlineFunctionInfo info;
                changed |= llvm::InlineFunction(*call, info, true).isSuccess();
            }
        }
        if (changed) {
            promote(function);
        }
        keep_reads(function);
        known.invalidate(function, llvm::PreservedAnalyses::none());
        llvm::EarlyCSEPass().run(function, known); // no address is looked at twice between two writes
        known.invalidate(function, llvm::PreservedAnalyses::none());
        if (const unsigned length = length_if_trivial(function); length != 0) {
            trivial[&function] = length;
        }
    }

    // What is read for something that nobody uses, as a comparison whose outcome is dropped, is read all the same. Where
    // it is taken in, or with what was taken in, it would go otherwise.
    static void keep_reads(llvm::Function& function)
    {
        llvm::DenseSet<const llvm::User*> unused;
        for (llvm::BasicBlock& block : llvm::reverse(function)) {
            for (llvm::Instruction& each : llvm::reverse(block)) {
                const bool goes =
                    llvm::wouldInstructionBeTriviallyDead(&each) &&
                    llvm::all_of(each.users(), [&](const llvm::User* user) { return unused.contains(user); });
                if (!goes) {
                    continue;
                }
                unused.insert(&each);
                if (auto* load = llvm::dyn_cast<llvm::LoadInst>(&each);
                    load != nullptr && !load->isAtomic()) {
                    load->setVolatile(true);
                }
            }
        }
    }

    static bool may_take_in(const llvm::Function& function, const llvm::CallBase& call)
    {
        const llvm::Function& called = *call.getCalledFunction();
        return &called != &function && !call.isMustTailCall() &&
               called.getFunctionType() == call.getFunctionType() &&
               (call.getType()->isVoidTy() || !call.use_empty()) &&
               llvm::AttributeFuncs::areInlineCompatible(function, called) &&
               (function.getSubprogram() == nullptr || called.getSubprogram() == nullptr ||
                call.getDebugLoc());
    }

    // How many instructions it has, or 0 if it is not trivial, has variables in memory, or may be another at link
    // time.
    static unsigned length_if_trivial(llvm::Function& function)
    {
        if ((!function.hasLinkOnceODRLinkage() && !function.hasLocalLinkage()) || function.isVarArg() ||
            function.isPresplitCoroutine()) {
            return 0;
        }
        unsigned length = 0, calls = 0;
        for (llvm::BasicBlock& block : function) {
            for (llvm::Instruction& each : block) {
                const auto* call = llvm::dyn_cast<llvm::CallBase>(&each);
                const auto* intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(&each);
                calls += call != nullptr && intrinsic == nullptr ? 1 : 0;
                if (llvm::isa<llvm::AllocaInst>(each) || ++length > longest || calls > most_calls ||
                    (call != nullptr && call->isMustTailCall()) ||
                    (intrinsic != nullptr && asks_for_its_frame(*intrinsic))) {
                    return 0;
                }
            }
        }
        return llvm::isInlineViable(function).isSuccess() ? length : 0;
    }
    static bool asks_for_its_frame(const llvm::IntrinsicInst& intrinsic)
    {
        switch (intrinsic.getIntrinsicID()) {
        case llvm::Intrinsic::returnaddress:
        case llvm::Intrinsic::addressofreturnaddress:
        case llvm::Intrinsic::frameaddress:
        case llvm::Intrinsic::sponentry: return true;
        default: return false;
        }
    }

    // Makes values of variables whose address nobody has: the sanitizers look at no such variable. A pointer to
    // another variable stays where it is, since nobody would see its use behind that one's scope.
    static void promote(llvm::Function& function)
    {
        llvm::SmallVector<llvm::AllocaInst*, 16> all;
        for (llvm::Instruction& each : function.getEntryBlock()) {
            if (auto* place = llvm::dyn_cast<llvm::AllocaInst>(&each);
                place != nullptr && llvm::isAllocaPromotable(place) && !holds_address_of_variable(*place)) {
                all.push_back(place);
            }
        }
        if (!all.empty()) {
            llvm::DominatorTree tree(function);
            llvm::PromoteMemToReg(all, tree);
        }
    }
    static bool holds_address_of_variable(const llvm::AllocaInst& place)
    {
        for (const llvm::User* user : place.users()) {
            if (const auto* store = llvm::dyn_cast<llvm::StoreInst>(user);
                store != nullptr &&
                llvm::isa<llvm::AllocaInst>(llvm::getUnderlyingObject(store->getValueOperand()))) {
                return true;
            }
        }
        return false;
    }
};
} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK llvm::PassPluginLibraryInfo llvmGetPassPluginInfo()
{
    return {LLVM_PLUGIN_API_VERSION, "unreached-parts", "1", [](llvm::PassBuilder& builder) {
                // In front of the sanitizers, which register after the plugins.
                builder.registerOptimizerLastEPCallback(
                    [](llvm::ModulePassManager& passes, llvm::OptimizationLevel /*level*/) {
                        passes.addPass(unreached_parts());
                        passes.addPass(trivial_calls());
                    });
            }};
}
