import billing.payments.models.customers
import billing.payments.models.payments
import billing.payments.models.returned
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.text
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ('credit', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='StripeCustomer',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organization_id', models.CharField(max_length=64)),
                ('mode', models.CharField(choices=[('live', 'Live'), ('test', 'Test')], max_length=4)),
                ('stripe_id', models.CharField(blank=True, max_length=64, null=True, unique=True)),
                ('name', models.CharField(blank=True, max_length=200)),
                ('created_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'payments_stripe_customer',
                'constraints': [models.UniqueConstraint(fields=('organization_id', 'mode'), name='stripe_customer_is_one')],
            },
        ),
        migrations.CreateModel(
            name='PaymentMethod',
            fields=[
                ('id', models.CharField(default=billing.payments.models.customers.new_method_id, max_length=64, primary_key=True, serialize=False)),
                ('organization_id', models.CharField(max_length=64)),
                ('mode', models.CharField(choices=[('live', 'Live'), ('test', 'Test')], max_length=4)),
                ('stripe_id', models.CharField(max_length=64, unique=True)),
                ('kind', models.CharField(choices=[('card', 'Card'), ('bank', 'Bank account')], max_length=4)),
                ('brand', models.CharField(max_length=64)),
                ('last4', models.CharField(max_length=4)),
                ('expires_year', models.SmallIntegerField(blank=True, null=True)),
                ('expires_month', models.SmallIntegerField(blank=True, null=True)),
                ('is_default', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField()),
                ('detached_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'payments_method',
                'indexes': [models.Index(fields=['organization_id'], name='payment_method_by_org')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('is_default', True)), fields=('organization_id', 'mode'), name='payment_method_default_is_one'), models.CheckConstraint(condition=models.Q(('detached_at__isnull', True), ('is_default', False), _connector='OR'), name='payment_method_detached_is_no_default')],
            },
        ),
        migrations.CreateModel(
            name='AutoTopUp',
            fields=[
                ('organization_id', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('is_on', models.BooleanField(default=False)),
                ('threshold_cents', models.BigIntegerField()),
                ('amount_cents', models.BigIntegerField()),
                ('monthly_cap_cents', models.BigIntegerField()),
                ('decline_count', models.SmallIntegerField(default=0)),
                ('stopped_at', models.DateTimeField(blank=True, null=True)),
                ('changed_by', models.CharField(max_length=254)),
                ('changed_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'payments_auto_top_up',
                'indexes': [models.Index(condition=models.Q(('is_on', True), ('stopped_at__isnull', True)), fields=['organization_id'], name='auto_top_up_running')],
                'constraints': [models.CheckConstraint(condition=models.Q(('amount_cents__gt', 0), ('threshold_cents__gte', 0), ('monthly_cap_cents__gte', models.F('amount_cents'))), name='auto_top_up_makes_sense')],
            },
        ),
        migrations.CreateModel(
            name='PromotionalCode',
            fields=[
                ('code', models.CharField(max_length=40, primary_key=True, serialize=False)),
                ('amount_nanos', models.BigIntegerField()),
                ('credit_days', models.PositiveIntegerField(blank=True, null=True)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('redemptions_max', models.PositiveIntegerField(blank=True, null=True)),
                ('redemption_count', models.PositiveIntegerField(default=0)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('created_by', models.CharField(max_length=254)),
                ('created_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'payments_promotional_code',
                'constraints': [models.CheckConstraint(condition=models.Q(('code', django.db.models.functions.text.Upper('code'))), name='code_is_upper_case'), models.CheckConstraint(condition=models.Q(('amount_nanos__gt', 0)), name='code_is_worth_something'), models.CheckConstraint(condition=models.Q(('redemptions_max__isnull', True), ('redemption_count__lte', models.F('redemptions_max')), _connector='OR'), name='code_is_not_overdrawn')],
            },
        ),
        migrations.CreateModel(
            name='Redemption',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('code', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='redemptions', to='payments.promotionalcode')),
                ('user_id', models.CharField(max_length=64)),
                ('organization_id', models.CharField(max_length=64)),
                ('grant', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='redemption', to='credit.creditgrant')),
                ('redeemed_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'payments_redemption',
                'constraints': [models.UniqueConstraint(fields=('code', 'user_id'), name='code_is_used_once')],
            },
        ),
        migrations.CreateModel(
            name='StripeEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('event_id', models.CharField(db_collation='C', max_length=255, unique=True)),
                ('type', models.CharField(max_length=128)),
                ('mode', models.CharField(choices=[('live', 'Live'), ('test', 'Test')], max_length=4)),
                ('object_kind', models.CharField(blank=True, max_length=16)),
                ('object_id', models.CharField(blank=True, max_length=255)),
                ('api_version', models.CharField(blank=True, max_length=64)),
                ('body', models.BinaryField()),
                ('received_at', models.DateTimeField()),
                ('due_at', models.DateTimeField()),
                ('attempt_count', models.IntegerField(default=0)),
                ('processed_at', models.DateTimeField(blank=True, null=True)),
                ('problem', models.CharField(blank=True, max_length=500)),
            ],
            options={
                'verbose_name': 'webhook from Stripe',
                'verbose_name_plural': 'webhooks from Stripe',
                'db_table': 'payments_event',
                'indexes': [models.Index(condition=models.Q(('processed_at__isnull', True)), fields=['due_at'], name='stripe_event_due'), models.Index(fields=['received_at'], name='stripe_event_by_time')],
            },
        ),
        migrations.CreateModel(
            name='StripePayment',
            fields=[
                ('id', models.CharField(default=billing.payments.models.payments.new_payment_id, max_length=64, primary_key=True, serialize=False)),
                ('organization_id', models.CharField(max_length=64)),
                ('mode', models.CharField(choices=[('live', 'Live'), ('test', 'Test')], max_length=4)),
                ('purpose', models.CharField(choices=[('top_up', 'Credit purchase'), ('automatic', 'Auto-recharge'), ('invoice', 'Invoice')], max_length=16)),
                ('amount_cents', models.BigIntegerField()),
                ('tax_cents', models.BigIntegerField(default=0)),
                ('status', models.CharField(choices=[('created', 'Requested'), ('open', 'Not paid yet'), ('requires_action', 'Needs confirmation'), ('processing', 'Processing'), ('canceled', 'Canceled'), ('failed', 'Declined'), ('succeeded', 'Paid')], default='created', max_length=16)),
                ('method', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='payments.paymentmethod')),
                ('invoice_id', models.CharField(blank=True, max_length=64)),
                ('idempotency_key', models.CharField(max_length=64)),
                ('requested_by', models.CharField(max_length=254)),
                ('created_at', models.DateTimeField()),
                ('asked_at', models.DateTimeField(blank=True, null=True)),
                ('looked_at', models.DateTimeField(blank=True, null=True)),
                ('settled_at', models.DateTimeField(blank=True, null=True)),
                ('customer_stripe_id', models.CharField(blank=True, max_length=64)),
                ('intent_id', models.CharField(blank=True, max_length=64, null=True, unique=True)),
                ('checkout_id', models.CharField(blank=True, max_length=128, null=True, unique=True)),
                ('action_url', models.TextField(blank=True)),
                ('receipt_url', models.TextField(blank=True)),
                ('failure_code', models.CharField(blank=True, max_length=64)),
                ('failure_words', models.CharField(blank=True, max_length=500)),
                ('stripe_words', models.CharField(blank=True, max_length=500)),
                ('payment_id', models.CharField(blank=True, max_length=64, null=True, unique=True)),
            ],
            options={
                'verbose_name': 'payment through Stripe',
                'verbose_name_plural': 'payments through Stripe',
                'db_table': 'payments_payment',
                'indexes': [models.Index(fields=['organization_id', '-created_at'], name='stripe_payment_by_org'), models.Index(condition=models.Q(('status__in', ('created', 'open', 'requires_action', 'processing'))), fields=['looked_at'], name='stripe_payment_open')],
                'constraints': [models.UniqueConstraint(fields=('organization_id', 'mode', 'purpose', 'idempotency_key'), name='stripe_payment_is_made_once'), models.CheckConstraint(condition=models.Q(('amount_cents__gt', 0), ('tax_cents__gte', 0)), name='stripe_payment_is_positive'), models.CheckConstraint(condition=models.Q(models.Q(('payment_id__isnull', False), ('status', 'succeeded')), models.Q(models.Q(('status', 'succeeded'), _negated=True), ('payment_id__isnull', True)), _connector='OR'), name='stripe_payment_paid_is_booked'), models.CheckConstraint(condition=models.Q(models.Q(('settled_at__isnull', False), ('status__in', ('canceled', 'failed', 'succeeded'))), models.Q(models.Q(('status__in', ('canceled', 'failed', 'succeeded')), _negated=True), ('settled_at__isnull', True)), _connector='OR'), name='stripe_payment_final_is_settled'), models.CheckConstraint(condition=models.Q(models.Q(('purpose', 'invoice'), models.Q(('invoice_id', ''), _negated=True)), models.Q(models.Q(('purpose', 'invoice'), _negated=True), ('invoice_id', '')), _connector='OR'), name='stripe_payment_names_its_invoice'), models.UniqueConstraint(condition=models.Q(('purpose', 'automatic'), ('status__in', ('created', 'open', 'requires_action', 'processing'))), fields=('organization_id', 'mode'), name='stripe_payment_one_automatic'), models.UniqueConstraint(condition=models.Q(('purpose', 'invoice'), ('status__in', ('created', 'open', 'requires_action', 'processing'))), fields=('invoice_id', 'mode'), name='stripe_payment_one_per_invoice')],
            },
        ),
        migrations.CreateModel(
            name='Gap',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('unknown_payment', 'Payment at Stripe without a record here'), ('unlike_payment', 'Payment differs from our record'), ('missing_payment', 'Recorded payment missing at Stripe'), ('unknown_refund', 'Refund at Stripe without a record here'), ('unlike_refund', 'Refund differs from our record'), ('missing_refund', 'Recorded refund missing at Stripe'), ('dispute', "Disputed amount differs from our record")], max_length=32)),
                ('reference', models.CharField(max_length=128)),
                ('mode', models.CharField(choices=[('live', 'Live'), ('test', 'Test')], max_length=4)),
                ('organization_id', models.CharField(blank=True, max_length=64)),
                ('amount_cents', models.BigIntegerField()),
                ('currency', models.CharField(max_length=3)),
                ('words', models.CharField(max_length=500)),
                ('seen_at', models.DateTimeField()),
                ('closed_at', models.DateTimeField(blank=True, null=True)),
                ('closed_by', models.CharField(blank=True, max_length=254)),
                ('closed_because', models.CharField(blank=True, max_length=200)),
            ],
            options={
                'verbose_name': 'unmatched payment',
                'db_table': 'payments_gap',
                'indexes': [models.Index(condition=models.Q(('closed_at__isnull', True)), fields=['seen_at'], name='gap_open')],
                'constraints': [models.UniqueConstraint(fields=('kind', 'reference'), name='gap_is_named_once')],
            },
        ),
        migrations.CreateModel(
            name='Reconciliation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('mode', models.CharField(choices=[('live', 'Live'), ('test', 'Test')], max_length=4)),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField()),
                ('looked_until', models.DateTimeField()),
                ('looked_dispute', models.CharField(blank=True, max_length=64)),
                ('began_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('movement_count', models.IntegerField(default=0)),
                ('healed_count', models.IntegerField(default=0)),
                ('gap_count', models.IntegerField(default=0)),
            ],
            options={
                'db_table': 'payments_reconciliation',
                'constraints': [models.CheckConstraint(condition=models.Q(('gap_count__gte', 0), ('healed_count__gte', 0), ('movement_count__gte', 0)), name='reconciliation_counts'), models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('mode',), name='reconciliation_under_way_is_one')],
            },
        ),
        migrations.CreateModel(
            name='Refund',
            fields=[
                ('id', models.CharField(default=billing.payments.models.returned.new_refund_id, max_length=64, primary_key=True, serialize=False)),
                ('organization_id', models.CharField(max_length=64)),
                ('mode', models.CharField(choices=[('live', 'Live'), ('test', 'Test')], max_length=4)),
                ('payment', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='refunds', to='payments.stripepayment')),
                ('amount_cents', models.BigIntegerField()),
                ('tax_cents', models.BigIntegerField(default=0)),
                ('status', models.CharField(choices=[('waiting', 'Waiting for credit held by gateways'), ('created', 'Requested'), ('pending', 'Processing'), ('succeeded', 'Refunded'), ('failed', 'Failed')], default='created', max_length=16)),
                ('stripe_id', models.CharField(blank=True, max_length=64, null=True, unique=True)),
                ('idempotency_key', models.CharField(max_length=64)),
                ('reason', models.CharField(max_length=200)),
                ('requested_by', models.CharField(max_length=254)),
                ('created_at', models.DateTimeField()),
                ('asked_at', models.DateTimeField(blank=True, null=True)),
                ('looked_at', models.DateTimeField(blank=True, null=True)),
                ('settled_at', models.DateTimeField(blank=True, null=True)),
                ('failure_words', models.CharField(blank=True, max_length=500)),
            ],
            options={
                'db_table': 'payments_refund',
                'indexes': [models.Index(condition=models.Q(('status__in', ('created', 'pending'))), fields=['looked_at'], name='refund_open')],
                'constraints': [models.UniqueConstraint(fields=('organization_id', 'idempotency_key'), name='refund_is_made_once'), models.CheckConstraint(condition=models.Q(('amount_cents__gte', 0), ('tax_cents__gte', 0), ('amount_cents__gt', django.db.models.expressions.CombinedExpression(models.F('tax_cents'), '*', models.Value(-1)))), name='refund_is_positive')],
            },
        ),
        migrations.CreateModel(
            name='Dispute',
            fields=[
                ('stripe_id', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('organization_id', models.CharField(max_length=64)),
                ('mode', models.CharField(choices=[('live', 'Live'), ('test', 'Test')], max_length=4)),
                ('payment', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='disputes', to='payments.stripepayment')),
                ('amount_cents', models.BigIntegerField()),
                ('reason', models.CharField(max_length=64)),
                ('status', models.CharField(max_length=32)),
                ('due_by', models.DateTimeField(blank=True, null=True)),
                ('opened_at', models.DateTimeField()),
                ('taken_cents', models.BigIntegerField(default=0)),
                ('taken_tax_cents', models.BigIntegerField(default=0)),
                ('withdrawn_at', models.DateTimeField(blank=True, null=True)),
                ('reinstated_at', models.DateTimeField(blank=True, null=True)),
                ('closed_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'payments_dispute',
                'indexes': [models.Index(fields=['organization_id'], name='dispute_by_org')],
                'constraints': [models.CheckConstraint(condition=models.Q(('amount_cents__gt', 0), ('taken_cents__gte', 0), ('taken_tax_cents__gte', 0)), name='dispute_is_positive'), models.CheckConstraint(condition=models.Q(('reinstated_at__isnull', True), ('withdrawn_at__isnull', False), _connector='OR'), name='dispute_reinstated_was_withdrawn')],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='redemption',
            trigger=pgtrigger.compiler.Trigger(name='redemption_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='686132a2fc478e6021df4f52d6dfbf5f9248d83d', operation='UPDATE OR DELETE', pgid='pgtrigger_redemption_stays_7257a', table='payments_redemption', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='redemption',
            trigger=pgtrigger.compiler.Trigger(name='redemption_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='a5bafc6b45d279cdcbae678f32bb8714b38da682', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_redemption_all_stay_dac81', table='payments_redemption', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='stripeevent',
            trigger=pgtrigger.compiler.Trigger(name='stripe_event_stays', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."event_id" IS DISTINCT FROM (NEW."event_id") OR OLD."type" IS DISTINCT FROM (NEW."type") OR OLD."mode" IS DISTINCT FROM (NEW."mode") OR OLD."body" IS DISTINCT FROM (NEW."body") OR OLD."received_at" IS DISTINCT FROM (NEW."received_at"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='6a968880b339c63f0de2a512d70cab1ead6a90a3', operation='UPDATE', pgid='pgtrigger_stripe_event_stays_4a874', table='payments_event', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='stripepayment',
            trigger=pgtrigger.compiler.Trigger(name='stripe_payment_paid_stays', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."status" = \'succeeded\')', func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='1296ff9019245a2344cba945217b8343737c5184', operation='UPDATE OR DELETE', pgid='pgtrigger_stripe_payment_paid_stays_ee428', table='payments_payment', when='BEFORE')),
        ),
    ]
