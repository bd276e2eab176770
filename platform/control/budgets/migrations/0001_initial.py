import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ('tenants', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='SpendLimit',
            fields=[
                ('budget_id', models.CharField(db_collation='C', max_length=80, primary_key=True, serialize=False)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='spend_limits', to='tenants.organization')),
                ('limited_id', models.CharField(max_length=64)),
                ('period', models.CharField(choices=[('month', 'Month'), ('week', 'Week'), ('day', 'Day')], max_length=8)),
                ('limit_nanos', models.BigIntegerField()),
                ('is_hard', models.BooleanField()),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'budgets_spend_limit',
                'constraints': [models.CheckConstraint(condition=models.Q(('limit_nanos__gte', 0)), name='spend_limit_not_negative'), models.CheckConstraint(condition=models.Q(('period__in', ['week', 'day']), models.Q(('is_hard', False), ('period', 'month')), _connector='OR'), name='hard_month_is_its_owners'), models.UniqueConstraint(fields=('limited_id', 'period'), name='spend_limit_is_unique')],
            },
        ),
    ]
